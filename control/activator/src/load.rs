//! How many requests an app had on average, weighted by time: what the autoscaler is fed with. Pure.

use dormouse_fleet::clock::Boottime;

/// A count and its integral over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    count: u32,
    /// Requests that came since the last take.
    arrived: u32,
    /// Sum of count × nanoseconds since the last take.
    area: u128,
    changed: Boottime,
}

/// The load of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    /// Requests at one time, on average over the interval.
    pub concurrency: f64,
    /// Requests that came in the interval.
    pub requests: f64,
}

impl Load {
    /// A request came.
    pub fn enter(&mut self, now: Boottime) {
        self.advance(now);
        self.count += 1;
        self.arrived += 1;
    }

    /// A request ended.
    pub fn leave(&mut self, now: Boottime) {
        self.advance(now);
        self.count = self.count.saturating_sub(1);
    }

    /// The average between `since` (when it was last taken) and `now`; a new interval begins.
    pub fn take(&mut self, since: Boottime, now: Boottime) -> Average {
        self.advance(now);
        let interval = now.since(since).as_nanos();
        let concurrency = match interval {
            0 => f64::from(self.count),
            _ => self.area as f64 / interval as f64,
        };
        let average = Average {
            concurrency,
            requests: f64::from(self.arrived),
        };
        (self.area, self.arrived) = (0, 0);
        average
    }

    /// Whether nothing runs and nothing came since the last take.
    pub fn is_idle(&self) -> bool {
        self.count == 0 && self.arrived == 0
    }

    fn advance(&mut self, now: Boottime) {
        self.area += u128::from(self.count) * now.since(self.changed).as_nanos();
        self.changed = self.changed.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_weighs_each_count_by_its_time() {
        let mut load = Load::default();
        load.enter(Boottime(1_000));
        load.enter(Boottime(1_500));
        load.leave(Boottime(1_750));
        // 500 ns of one, 250 ns of two, 250 ns of one.
        let average = load.take(Boottime(1_000), Boottime(2_000));
        assert_eq!(
            average,
            Average {
                concurrency: 1.25,
                requests: 2.0
            }
        );
        assert!(!load.is_idle());
        let average = load.take(Boottime(2_000), Boottime(3_000));
        assert_eq!(
            average,
            Average {
                concurrency: 1.0,
                requests: 0.0
            }
        );
        load.leave(Boottime(3_000));
        assert!(load.is_idle());
    }

    #[test]
    fn a_request_shorter_than_the_interval_counts_for_its_part() {
        let mut load = Load::default();
        load.enter(Boottime(100));
        load.leave(Boottime(200));
        let average = load.take(Boottime(0), Boottime(1_000));
        assert_eq!(
            average,
            Average {
                concurrency: 0.1,
                requests: 1.0
            }
        );
    }

    #[test]
    fn an_interval_without_length_has_the_count_of_its_moment() {
        let mut load = Load::default();
        load.enter(Boottime(5));
        let average = load.take(Boottime(5), Boottime(5));
        assert_eq!(
            average,
            Average {
                concurrency: 1.0,
                requests: 1.0
            }
        );
    }

    #[test]
    fn a_clock_read_out_of_order_takes_nothing_back() {
        let mut load = Load::default();
        load.enter(Boottime(1_000));
        load.leave(Boottime(900));
        let average = load.take(Boottime(0), Boottime(1_000));
        assert_eq!(
            average,
            Average {
                concurrency: 0.0,
                requests: 1.0
            }
        );
    }
}

//! Average concurrency: the number of an app's requests, weighted by time. Input of the autoscaler. Pure.

use dormouse_fleet::clock::Boottime;

/// The number of requests and its integral over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    count: u32,
    /// Requests that arrived since the last [`Load::take`].
    arrived: u32,
    /// Sum of count × nanoseconds since the last [`Load::take`].
    area: u128,
    changed: Boottime,
}

/// The load of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    /// Average number of concurrent requests.
    pub concurrency: f64,
    /// Number of requests that arrived.
    pub requests: f64,
}

impl Load {
    /// A request arrived.
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

    /// The average from `since`, the time of the previous call, to `now`; begins a new interval.
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

    /// The number of requests that have not ended.
    pub fn in_progress(&self) -> u32 {
        self.count
    }

    /// Whether no request is in progress and none arrived since the last [`Load::take`].
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
        // One request for 500 ns, two for 250 ns, one for 250 ns.
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
    fn a_request_shorter_than_the_interval_counts_by_its_duration() {
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
    fn an_empty_interval_has_the_current_count() {
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
    fn an_earlier_clock_reading_changes_nothing() {
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

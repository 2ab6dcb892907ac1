//! The switch between proxy and serve mode, with damping: hysteresis, and a minimum time in proxy mode. Both are off by default, as Knative
//! has neither. Only the way out of proxy mode is damped: the activator enters the path at once.

/// Decisions in a row in which the excess burst capacity must reach the margin.
pub const TICKS: u32 = 2;
/// The margin as a fraction of the target burst capacity.
const MARGIN: f64 = 0.1;
/// Lower limit of the margin, requests.
const MARGIN_MIN: f64 = 1.0;

/// The damping of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Damping {
    /// The activator leaves the path only at a margin, in [`TICKS`] decisions in a row.
    pub hysteresis: bool,
    /// Minimum time in proxy mode after serve mode, milliseconds.
    pub dwell_ms: i64,
}

/// Whether the activator is in the path of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    serves: bool,
    /// When serve mode ended last.
    left_ms: Option<i64>,
    /// Decisions in a row in which the excess burst capacity has reached the margin.
    reached: u32,
}

/// Why an app stays in proxy mode that would change to serve mode without damping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So many further decisions with the margin are missing.
    Margin(u32),
    /// The minimum time in proxy mode ends in so many milliseconds.
    Dwell(i64),
}

/// The least excess burst capacity at which the activator leaves the path with hysteresis.
pub fn margin(target_burst_capacity: f64) -> f64 {
    (target_burst_capacity * MARGIN).max(MARGIN_MIN)
}

impl Path {
    /// The path of an app that was found in this mode.
    pub fn found(serves: bool) -> Self {
        Self {
            serves,
            ..Self::default()
        }
    }

    /// Whether clients are forwarded to pods directly as soon as one is ready.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Takes the capacities of a decision into account. Without a target burst capacity no excess is computed, and nothing is to be
    /// waited for.
    pub fn decided(&mut self, excess_burst_capacity: i32, target_burst_capacity: f64) {
        self.reached = if target_burst_capacity <= 0.0 {
            TICKS
        } else if f64::from(excess_burst_capacity) >= margin(target_burst_capacity) {
            self.reached.saturating_add(1)
        } else {
            0
        };
    }

    /// A tick had no data to decide by.
    pub fn undecided(&mut self) {
        self.reached = 0;
    }

    /// Changes the mode, unless it waits. `serve`: serve mode is wanted.
    pub fn change(&mut self, serve: bool, damping: Damping, now_ms: i64) {
        if !serve && self.serves {
            self.serves = false;
            self.left_ms = Some(now_ms);
            self.reached = 0;
        }
        if serve && self.wait(damping, now_ms).is_none() {
            self.serves = true;
        }
    }

    /// What a change to serve mode waits for.
    pub fn wait(&self, damping: Damping, now_ms: i64) -> Option<Wait> {
        if self.serves {
            return None;
        }
        let dwell = self
            .left_ms
            .map(|left| left.saturating_add(damping.dwell_ms).saturating_sub(now_ms));
        if let Some(rest) = dwell.filter(|rest| *rest > 0) {
            return Some(Wait::Dwell(rest));
        }
        let missing = TICKS.saturating_sub(self.reached);
        (damping.hysteresis && missing > 0).then_some(Wait::Margin(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Damping = Damping {
        hysteresis: false,
        dwell_ms: 0,
    };

    #[test]
    fn without_damping_the_mode_is_the_wanted_one() {
        let mut path = Path::default();
        for (now, serve) in [(0, true), (1, false), (2, true), (2, false)] {
            path.change(serve, OFF, now);
            assert_eq!(path.serves(), serve);
        }
    }

    #[test]
    fn with_hysteresis_the_activator_leaves_at_a_tenth_of_the_target_burst_capacity_in_two_decisions()
     {
        let on = Damping {
            hysteresis: true,
            ..OFF
        };
        let mut path = Path::default();
        for (excess, serves) in [(20, false), (21, false), (22, false), (22, true)] {
            path.decided(excess, 211.0);
            path.change(true, on, 0);
            assert_eq!(path.serves(), serves, "{excess}");
        }
        path.decided(0, 211.0);
        path.change(true, on, 0);
        assert!(path.serves(), "between 0 and the margin the mode stays");
        path.change(false, on, 0);
        assert!(!path.serves());
        path.decided(50, 211.0);
        assert_eq!(path.wait(on, 0), Some(Wait::Margin(1)));
    }

    #[test]
    fn the_margin_is_at_least_one_request_and_none_without_a_target_burst_capacity() {
        assert!((margin(3.0) - 1.0).abs() < 1e-9);
        assert!((margin(211.0) - 21.1).abs() < 1e-9);
        let on = Damping {
            hysteresis: true,
            ..OFF
        };
        let mut path = Path::default();
        path.decided(0, 0.0);
        path.change(true, on, 0);
        assert!(path.serves());
    }

    #[test]
    fn the_minimum_time_counts_from_the_end_of_serve_mode_and_not_from_a_wake() {
        let dwell = Damping {
            dwell_ms: 1_000,
            ..OFF
        };
        let mut path = Path::default();
        path.change(true, dwell, 5);
        assert!(path.serves(), "it has not served yet");
        path.change(false, dwell, 10);
        path.change(true, dwell, 1_009);
        assert_eq!(path.wait(dwell, 1_009), Some(Wait::Dwell(1)));
        assert!(!path.serves());
        path.change(true, dwell, 1_010);
        assert!(path.serves());
    }
}

//! The back-off of new pods after failed ones.

use std::time::Duration;

use dormouse_fleet::Boottime;

use crate::action::Failure;

/// The wait after the second failure in a row; kubelet's.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// The longest wait; kubelet's.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// A pod that has been ready for this long resets the back-off.
pub(crate) const RESET_AFTER: Duration = Duration::from_mins(1);

/// Failures in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Boottime>,
    /// The last failure.
    pub last: Option<Failure>,
}

impl Backoff {
    /// A pod failed. After the first failure a new pod starts at once, then after a wait that doubles each time.
    pub(crate) fn failed(&mut self, now: Boottime, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(failure);
        self.until = self.failures.checked_sub(2).map(|doublings| {
            now + WAIT_MIN
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(WAIT_MAX)
        });
    }

    /// Resets the back-off.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The remaining wait before a new pod; none: it may start.
    pub(crate) fn wait(&self, now: Boottime) -> Option<Duration> {
        self.until
            .map(|until| until.since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_the_second_failure_on_and_ends_at_five_minutes() {
        let mut backoff = Backoff::default();
        let now = Boottime(1_000);
        let mut waits = Vec::new();
        for _ in 0..8 {
            backoff.failed(now, Failure::new("Error", "exit status 1"));
            waits.push(backoff.wait(now).map_or(0, |wait| wait.as_secs()));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        backoff.clear();
        assert_eq!(backoff.wait(now), None);
    }
}

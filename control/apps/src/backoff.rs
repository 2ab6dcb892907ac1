//! The back-off of new pods after failed ones.

use std::time::Duration;

use dormouse_cluster::app::{CRASH_LOOP, PodFailures};
use dormouse_fleet::Boottime;

use crate::action::Failure;

/// The wait after the second failure in a row; kubelet's.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// The longest wait; kubelet's.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// Failures in a row after which requests are not parked until the next start.
const FAILING: u32 = 3;
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
    /// The failures that an earlier control has seen. The next pod starts at once.
    pub(crate) fn resumed(stored: Option<&PodFailures>) -> Self {
        let last = stored.map(|stored| Failure::new(&stored.reason, &stored.message));
        Self {
            failures: stored.map_or(0, |stored| stored.count),
            until: None,
            last,
        }
    }

    /// The failures in a row as another control is to resume them.
    pub(crate) fn stored(&self) -> Option<PodFailures> {
        let last = self.last.as_ref()?;
        Some(PodFailures {
            count: self.failures,
            reason: last.reason.clone(),
            message: last.message.clone(),
        })
    }

    /// Several pods have failed one after another.
    pub(crate) fn in_a_row(&self) -> Option<Failure> {
        let failures = self.failures;
        let last = self.last.as_ref().filter(|_| failures > 1)?;
        let message = format!("{failures} pods failed in a row, the last: {last}");
        Some(Failure::new(CRASH_LOOP, message))
    }

    /// A pod failed. After the first failure a new pod starts at once, then after a wait that doubles each time.
    pub(crate) fn failed(&mut self, now: Boottime, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(failure);
        self.until = (self.failures > 1).then(|| now + wait_after(self.failures));
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

    /// The wait after the last failure, once there have been so many that no pod is expected to become ready soon.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.failures >= FAILING).then(|| wait_after(self.failures))
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

/// The wait after so many failures in a row; at least two.
fn wait_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(2);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    WAIT_MIN.saturating_mul(factor).min(WAIT_MAX)
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
        assert_eq!(backoff.pause(), Some(WAIT_MAX));
        backoff.clear();
        assert_eq!(backoff.wait(now), None);
        assert_eq!(backoff.pause(), None);
    }

    #[test]
    fn requests_are_parked_until_the_third_failure() {
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        for _ in 0..4 {
            backoff.failed(Boottime(1), Failure::new("Error", "exit status 1"));
            pauses.push(backoff.pause().map(|pause| pause.as_secs()));
        }
        assert_eq!(pauses, [None, None, Some(20), Some(40)]);
    }
}

//! How long a new pod waits after the ones before it failed.

use std::time::Duration;

use dormouse_fleet::Boottime;

/// The wait after the second failure in a row; kubelet's.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// The longest wait; kubelet's.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// A pod that was ready for so long shows that the failures are over.
pub(crate) const WELL_AFTER: Duration = Duration::from_mins(1);

/// Failures in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Boottime>,
    /// Why the last one failed: a word, and for people.
    pub last: Option<(String, String)>,
}

impl Backoff {
    /// A pod failed. The first failure is made good at once, later ones after a while that doubles.
    pub(crate) fn failed(&mut self, now: Boottime, reason: String, message: String) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some((reason, message));
        self.until = self.failures.checked_sub(2).map(|doublings| {
            now + WAIT_MIN
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(WAIT_MAX)
        });
    }

    /// Pods are well again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How long a new pod must still wait; none: it may start.
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
            backoff.failed(now, "Error".into(), "exit status 1".into());
            waits.push(backoff.wait(now).map_or(0, |wait| wait.as_secs()));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        backoff.clear();
        assert_eq!(backoff.wait(now), None);
    }
}

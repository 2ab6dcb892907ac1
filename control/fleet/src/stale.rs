//! Static stability: when neither control nor an activator answers, a node goes on with its last entries. Pure.
//!
//! An expired node lease sends new connections to an activator, because control may have removed pods meanwhile. Where no
//! activator answers either, that would refuse connections to pods that run: the last entries are better.

use std::time::Duration;

use crate::clock::Boottime;

/// Longest time without an answer of any activator after which the node's last entries are used.
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// Longest interval of probes.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Whether the last entries are used, decided from grants and probes of the activators.
#[derive(Debug)]
pub struct Stale {
    lease: Duration,
    granted_at: Option<Boottime>,
    /// Since when no activator has answered; none: control grants leases.
    unanswered: Option<Boottime>,
    alone: bool,
}

impl Stale {
    /// The state at the agent's start; `stale`: its predecessor left the node in this mode; `lease`: assumed before the
    /// first grant.
    pub fn new(stale: bool, lease: Duration) -> Self {
        Self {
            lease,
            granted_at: None,
            unanswered: None,
            alone: stale,
        }
    }

    /// Control has granted a lease: the entries are the newest.
    pub fn granted(&mut self, lease: Duration, now: Boottime) {
        self.lease = lease;
        self.granted_at = Some(now);
        self.unanswered = None;
        self.alone = false;
    }

    /// Whether the activators have to be probed: there is no stream, or half of the lease has passed without a grant.
    pub fn is_due(&mut self, connected: bool, now: Boottime) -> bool {
        let fresh = self
            .granted_at
            .is_some_and(|at| now.since(at) < self.lease / 2);
        let due = !(connected && fresh);
        if due {
            self.unanswered.get_or_insert(now);
        } else {
            self.unanswered = None;
        }
        due
    }

    /// Interval of probes, and the timeout of each.
    pub fn interval(&self) -> Duration {
        INTERVAL_MAX.min(self.lease / 8)
    }

    /// The result of a probe. Returns the new mode, if it changed.
    pub fn probed(&mut self, answered: bool, now: Boottime) -> Option<bool> {
        let since = self.unanswered?;
        let stale = if answered {
            self.unanswered = Some(now);
            false
        } else {
            self.alone || now.since(since) >= PATIENCE_MAX.min(self.lease / 4)
        };
        let changed = stale != self.alone;
        self.alone = stale;
        changed.then_some(stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);
    const START: Boottime = Boottime(1_000_000_000_000);

    fn granted() -> Stale {
        let mut stale = Stale::new(false, LEASE);
        stale.granted(LEASE, START);
        stale
    }

    #[test]
    fn activators_are_probed_without_a_stream_or_when_grants_are_overdue() {
        let mut stale = granted();
        assert!(!stale.is_due(true, START + 14 * SECOND));
        assert!(stale.is_due(true, START + 15 * SECOND));
        assert!(stale.is_due(false, START + SECOND));
        stale.granted(LEASE, START + 16 * SECOND);
        assert!(!stale.is_due(true, START + 17 * SECOND));
    }

    #[test]
    fn the_last_entries_are_used_when_no_activator_has_answered_for_two_seconds() {
        let mut stale = granted();
        assert!(stale.is_due(false, START));
        assert_eq!(stale.probed(false, START + SECOND), None);
        assert_eq!(stale.probed(true, START + 2 * SECOND), None);
        assert_eq!(stale.probed(false, START + 3 * SECOND), None);
        assert_eq!(stale.probed(false, START + 4 * SECOND), Some(true));
        assert_eq!(stale.probed(false, START + 5 * SECOND), None);
    }

    #[test]
    fn one_answer_or_a_grant_ends_the_use_of_the_last_entries() {
        let mut stale = granted();
        assert!(stale.is_due(false, START));
        assert_eq!(stale.probed(false, START + 2 * SECOND), Some(true));
        assert_eq!(stale.probed(true, START + 3 * SECOND), Some(false));
        assert_eq!(stale.probed(false, START + 5 * SECOND), Some(true));
        stale.granted(LEASE, START + 6 * SECOND);
        assert_eq!(stale.probed(false, START + 9 * SECOND), None);
    }

    #[test]
    fn short_leases_have_less_patience_so_that_no_gap_is_between_lease_and_mode() {
        let mut stale = granted();
        stale.granted(SECOND, START);
        assert!(stale.is_due(false, START));
        assert_eq!(stale.probed(false, START + SECOND / 4), Some(true));
    }
}

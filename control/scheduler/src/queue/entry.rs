//! A pod in the queue: where it is, its attempts, and its backoff.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_scheduler_decide::queue::Place;
use dormouse_scheduler_decide::{Plugin, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Lane;

/// The first backoff; kube-scheduler's `podInitialBackoffSeconds`.
const BACKOFF_MIN: SignedDuration = SignedDuration::from_secs(1);
/// The longest backoff; kube-scheduler's `podMaxBackoffSeconds`.
const BACKOFF_MAX: SignedDuration = SignedDuration::from_secs(10);
/// Doublings after which the backoff is the longest one.
const DOUBLINGS_MAX: u32 = 4;

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The pod, with its nomination.
    pub pod: Arc<Pod>,
    /// The name of its scheduler.
    pub scheduler: Arc<str>,
}

/// The attempts for a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempted {
    /// All attempts.
    pub attempts: u32,
    /// The time of the first one.
    pub first_at: Option<Timestamp>,
    /// Those by which plugins rejected it.
    rejections: u32,
    /// Those that failed, since the last that did not.
    errors: u32,
}

impl Attempted {
    /// Counts an attempt.
    pub(super) fn count(&mut self, now: Timestamp) {
        self.attempts = self.attempts.saturating_add(1);
        self.first_at.get_or_insert(now);
    }

    /// The backoff after the last attempt: none before the first rejection or error.
    fn backoff(&self) -> SignedDuration {
        let count = if self.errors > 0 {
            self.errors
        } else {
            self.rejections
        };
        let Some(doublings) = count.checked_sub(1) else {
            return SignedDuration::ZERO;
        };
        let backoff = BACKOFF_MIN * (1_i32 << doublings.min(DOUBLINGS_MAX));
        backoff.min(BACKOFF_MAX)
    }
}

/// A pod that was taken from the queue to be decided on.
#[derive(Clone, Debug)]
pub struct Popped {
    /// The number of the attempt, by which its end is reported.
    pub ticket: u64,
    /// The pod.
    pub waiting: Waiting,
    /// Attempts for the pod, this one included.
    pub attempted: Attempted,
}

/// The order in the active queue; pods of the same place in the order of their numbers.
pub(super) type Rank = (Place, u64);

/// The order in a backoff queue: by whole seconds of the end of the backoff, then as in the active queue.
pub(super) type BackoffRank = (i64, Rank);

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Active(Rank),
    /// After a rejection.
    Backoff(BackoffRank),
    /// After an error.
    ErrorBackoff(BackoffRank),
    Unschedulable,
    Gated,
    /// Popped, by the number of its attempt.
    InFlight(u64),
}

impl Location {
    pub(super) fn lane(&self) -> Option<Lane> {
        match self {
            Self::Active(_) => Some(Lane::Active),
            Self::Backoff(_) | Self::ErrorBackoff(_) => Some(Lane::Backoff),
            Self::Unschedulable => Some(Lane::Unschedulable),
            Self::Gated => Some(Lane::Gated),
            Self::InFlight(_) => None,
        }
    }
}

/// A pod in the queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) waiting: Waiting,
    pub(super) location: Location,
    pub(super) attempted: Attempted,
    /// When it was added, or came back from its last attempt.
    pub(super) queued_at: Timestamp,
    /// Its number in the order of arrival.
    number: u64,
    /// Its spec was changed while it was in flight.
    pub(super) is_changed: bool,
    /// The plugins that rejected it; none after an error.
    pub(super) rejectors: BTreeSet<Plugin>,
}

impl Entry {
    pub(super) fn new(waiting: Waiting, now: Timestamp, number: u64) -> Self {
        Self {
            waiting,
            location: Location::Unschedulable,
            attempted: Attempted::default(),
            queued_at: now,
            number,
            is_changed: false,
            rejectors: BTreeSet::new(),
        }
    }

    pub(super) fn rejected(&mut self, now: Timestamp, rejectors: BTreeSet<Plugin>) {
        if rejectors.is_empty() {
            self.failed(now);
            return;
        }
        self.attempted.rejections = self.attempted.rejections.saturating_add(1);
        self.attempted.errors = 0;
        self.rejectors = rejectors;
        self.queued_at = now;
    }

    pub(super) fn failed(&mut self, now: Timestamp) {
        self.attempted.errors = self.attempted.errors.saturating_add(1);
        self.rejectors.clear();
        self.queued_at = now;
    }

    pub(super) fn rank(&self) -> Rank {
        let priority = self.waiting.pod.priority();
        (Place::new(priority, self.queued_at), self.number)
    }

    pub(super) fn backoff_rank(&self) -> BackoffRank {
        (self.backoff_ends(), self.rank())
    }

    pub(super) fn is_backing_off(&self, now: Timestamp) -> bool {
        let backoff = self.attempted.backoff();
        !backoff.is_zero() && self.backoff_ends() > now.as_second()
    }

    /// The end of the backoff: the next whole second, so that pods of one second are in the order of priority.
    fn backoff_ends(&self) -> i64 {
        let exact = self.queued_at.checked_add(self.attempted.backoff());
        let exact = exact.unwrap_or(Timestamp::MAX);
        exact.as_second() + i64::from(exact.subsec_nanosecond() > 0)
    }
}

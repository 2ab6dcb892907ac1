//! The wait of shares for pods of their targets: for how long, and until when. Pure.

use dormouse_cluster::app::TRAFFIC_READY;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Family;

/// Time after which an app that gets no further pods has started those that it gets.
const STARTED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// The wait of the next shares of an app.
#[derive(Debug)]
pub(super) struct Wait {
    /// Since when they have waited; none: this plan is the first in which they may wait.
    pub(super) since: Option<Timestamp>,
    /// The time of that which counts.
    waited: SignedDuration,
    /// The progress deadline.
    deadline: SignedDuration,
}

impl Wait {
    /// The wait that the status shows. One for the shares of an earlier manifest is none for those of this one. Time in which no
    /// control ran does not count: no ready pod was seen then.
    pub(super) fn new(family: &Family, deadline: SignedDuration, now: Timestamp) -> Self {
        let status = family.app.status.as_ref();
        let waits = status.and_then(|status| status.traffic_move.as_ref()?.waits.as_ref());
        let condition = status.and_then(|status| status.condition(TRAFFIC_READY));
        let is_current = condition.is_some_and(|condition| {
            condition.observed_generation == family.app.metadata.generation
        });
        // If the clock was set back, the wait begins again.
        let since = waits.map(|at| at.0).filter(|at| is_current && *at <= now);
        let counts = since.map(|since| now.duration_since(since.max(family.since)));
        Self {
            since,
            waited: counts.unwrap_or_default(),
            deadline,
        }
    }

    /// Whether an app that gets no further pods has started those that it gets.
    pub(super) fn has_started(&self) -> bool {
        self.waited >= STARTED_AFTER
    }

    /// Whether the progress deadline is over.
    pub(super) fn is_late(&self) -> bool {
        self.waited >= self.deadline
    }

    /// The progress deadline, seconds.
    pub(super) fn deadline_s(&self) -> i64 {
        self.deadline.as_secs()
    }

    /// When the plan is due again because of the wait.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let left = [STARTED_AFTER, self.deadline].map(|end| end - self.waited);
        let left = left.into_iter().filter(SignedDuration::is_positive).min();
        now.checked_add(left?).ok()
    }
}

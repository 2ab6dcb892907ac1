//! What an engine decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_scheduler_decide::{
    Attempt, Conclusion, Nomination, Outcome, Plugin, Preemption, Status,
};

/// A decision.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The pod does not enter the queue.
    Gated(Status),
    /// The pod is to be bound to a node.
    Placed {
        /// One of the best nodes.
        node: Arc<str>,
    },
    /// No node can have the pod now.
    Unschedulable {
        /// The text of its condition. It may be as old as the last event that could have helped.
        message: String,
        /// The plugins that rejected it, and may wake it.
        plugins: BTreeSet<Plugin>,
        /// What becomes of its nomination.
        nomination: Nomination,
        /// The pods that could go for it, without the verdicts of nodes; missing if it was not tried.
        preemption: Option<Preemption>,
    },
    /// The attempt failed; the error.
    Error(String),
}

impl From<Conclusion> for Decision {
    /// The decision of an attempt that all nodes rejected.
    fn from(end: Conclusion) -> Self {
        match end.outcome {
            Outcome::Unschedulable(message) => Self::Unschedulable {
                message,
                plugins: end.unschedulable_plugins,
                nomination: end.nomination,
                preemption: end.preemption,
            },
            Outcome::Error(error) => Self::Error(error),
            Outcome::Gated(status) => Self::Gated(status),
            Outcome::Placed => Self::Error("no node was chosen".to_owned()),
        }
    }
}

impl Decision {
    /// Whether pods are to go for the pod.
    pub(crate) fn has_victims(&self) -> bool {
        let victims = Nomination::ToVictims;
        matches!(self, Self::Unschedulable { nomination, .. } if *nomination == victims)
    }

    /// The decision of an attempt that chose no node.
    pub fn of(attempt: Attempt) -> Self {
        match attempt.outcome {
            Outcome::Gated(status) => Self::Gated(status),
            Outcome::Error(error) => Self::Error(error),
            Outcome::Placed => Self::Error("no node was chosen".to_owned()),
            Outcome::Unschedulable(message) => Self::Unschedulable {
                message,
                plugins: attempt.unschedulable_plugins,
                nomination: attempt.nomination,
                preemption: attempt.preemption.map(|mut preemption| {
                    preemption.rejected.clear();
                    preemption
                }),
            },
        }
    }
}

//! The changes of the cluster that may help pods, and the answers by which they do.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use dormouse_scheduler_decide::queue::{Change, Event, Hint, VolumeChange, VolumeKind, events};
use dormouse_scheduler_decide::{Node, Plugin, Pod};

use super::Waiting;
use super::entry::{Entry, Location};

/// A change of the cluster that may help pods.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A pod was added, changed or removed.
    Pod {
        /// As it was.
        old: Option<Arc<Pod>>,
        /// As it is.
        new: Option<Arc<Pod>>,
    },
    /// A node was added, changed or removed.
    Node {
        /// As it was.
        old: Option<Arc<Node>>,
        /// As it is.
        new: Option<Arc<Node>>,
    },
    /// An object by which volumes are bound and attached was added, changed or removed.
    Volume {
        /// Its kind.
        kind: VolumeKind,
        /// Its namespace; empty for a cluster-scoped kind.
        namespace: String,
        /// What has happened.
        change: VolumeChange,
    },
}

impl Happened {
    /// The events of the change: none for one that no plugin looks at.
    pub(super) fn events(&self) -> Vec<Event> {
        events(self.change())
    }

    fn change(&self) -> Change<'_> {
        match self {
            Self::Pod { old, new } => Change::Pod {
                old: old.as_deref(),
                new: new.as_deref(),
            },
            Self::Node { old, new } => Change::Node {
                old: old.as_deref(),
                new: new.as_deref(),
            },
            Self::Volume {
                kind,
                namespace,
                change,
            } => Change::Volume {
                kind: *kind,
                namespace,
                change: *change,
            },
        }
    }
}

/// What the queue asks about pods.
pub trait Judge {
    /// Whether a pod may not enter the queue.
    fn is_gated(&self, waiting: &Waiting) -> bool;
    /// What an event does to a pod that `rejectors` rejected.
    fn hint(
        &self,
        waiting: &Waiting,
        rejectors: &BTreeSet<Plugin>,
        event: Event,
        change: Change<'_>,
    ) -> Hint;
}

/// What rejects a gated pod.
static GATE: LazyLock<BTreeSet<Plugin>> =
    LazyLock::new(|| BTreeSet::from([Plugin::SchedulingGates]));

/// The first of a change's events that may help a pod, as a text.
pub(super) fn helpful(
    judge: &impl Judge,
    entry: &Entry,
    happened: &Happened,
    events: &[Event],
) -> Option<String> {
    let change = happened.change();
    let rejectors = match entry.location {
        Location::Gated => &*GATE,
        _ => &entry.rejectors,
    };
    let helps = |event: &&Event| {
        judge.hint(&entry.waiting, rejectors, **event, change) == Hint::QueueAfterBackoff
    };
    events.iter().find(helps).map(ToString::to_string)
}

//! The events that changes of pods, nodes and what volumes need make.

use std::fmt;

use crate::node::Node;
use crate::pod::Pod;

/// A change of an object: no old one is an addition, no new one a deletion.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Of a pod.
    Pod {
        /// As it was.
        old: Option<&'a Pod>,
        /// As it is.
        new: Option<&'a Pod>,
    },
    /// Of a node.
    Node {
        /// As it was.
        old: Option<&'a Node>,
        /// As it is.
        new: Option<&'a Node>,
    },
    /// Of an object by which volumes are bound and attached.
    Volume {
        /// Its kind.
        kind: VolumeKind,
        /// Its namespace, if it has one.
        namespace: &'a str,
        /// What has happened to it.
        change: VolumeChange,
    },
}

/// The kinds of objects by which volumes are bound and attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum VolumeKind {
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
}

/// What has happened to such an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum VolumeChange {
    Added,
    Updated,
    Deleted,
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    AssignedPod,
    UnschedulablePod,
    Node,
    Volume(VolumeKind),
}

/// What has happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Delete,
    /// Nothing that plugins look at.
    Update,
    UpdateNodeAllocatable,
    UpdateNodeLabel,
    UpdateNodeTaint,
    UpdateNodeCondition,
    UpdateNodeAnnotation,
    UpdateNodeDeclaredFeature,
    UpdatePodLabel,
    UpdatePodScaleDown,
    UpdatePodToleration,
    UpdatePodSchedulingGatesEliminated,
}

/// An event, by which plugins are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub(crate) object: Object,
    pub(crate) action: Action,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object {
            Object::Volume(kind) => write!(f, "{kind:?}{:?}", self.action),
            object => write!(f, "{object:?}{:?}", self.action),
        }
    }
}

/// The events that a change makes, each of which plugins are asked about.
pub fn events(change: Change<'_>) -> Vec<Event> {
    let (object, actions) = match change {
        Change::Pod { old, new } => of_pod(old, new),
        Change::Node { old, new } => (Object::Node, of_node(old, new)),
        Change::Volume { kind, change, .. } => (Object::Volume(kind), vec![change.into()]),
    };
    let actions = actions.into_iter();
    actions.map(|action| Event { object, action }).collect()
}

impl From<VolumeChange> for Action {
    fn from(change: VolumeChange) -> Self {
        match change {
            VolumeChange::Added => Self::Add,
            VolumeChange::Updated => Self::Update,
            VolumeChange::Deleted => Self::Delete,
        }
    }
}

fn object(pod: &Pod) -> Object {
    if pod.node_name().is_empty() {
        Object::UnschedulablePod
    } else {
        Object::AssignedPod
    }
}

fn of_pod(old: Option<&Pod>, new: Option<&Pod>) -> (Object, Vec<Action>) {
    match (old, new) {
        (None, None) => (Object::UnschedulablePod, Vec::new()),
        (None, Some(new)) => (object(new), vec![Action::Add]),
        (Some(old), None) => (object(old), vec![Action::Delete]),
        // A pod that is bound comes to its node.
        (Some(old), Some(new)) if old.node_name().is_empty() && !new.node_name().is_empty() => {
            (object(new), vec![Action::Add])
        }
        (Some(old), Some(new)) => (object(new), pod_updates(old, new)),
    }
}

fn pod_updates(old: &Pod, new: &Pod) -> Vec<Action> {
    let changes = [
        (old.labels != new.labels, Action::UpdatePodLabel),
        (is_scaled_down(old, new), Action::UpdatePodScaleDown),
        (
            new.gates.is_empty() && !old.gates.is_empty(),
            Action::UpdatePodSchedulingGatesEliminated,
        ),
        // Tolerations can only be added.
        (
            old.tolerations.len() != new.tolerations.len(),
            Action::UpdatePodToleration,
        ),
    ];
    let actions = occurred(changes);
    if actions.is_empty() {
        vec![Action::Update]
    } else {
        actions
    }
}

fn occurred(changes: impl IntoIterator<Item = (bool, Action)>) -> Vec<Action> {
    let changes = changes.into_iter().filter(|(is_change, _)| *is_change);
    changes.map(|(_, action)| action).collect()
}

fn is_scaled_down(old: &Pod, new: &Pod) -> bool {
    let mut requests = old.requests.actual.iter();
    requests.any(|(name, before)| {
        let now = new.requests.actual.get(name);
        now.is_none_or(|now| before.milli_value() > now.milli_value())
    })
}

fn of_node(old: Option<&Node>, new: Option<&Node>) -> Vec<Action> {
    let (Some(old), Some(new)) = (old, new) else {
        let action = new.map_or(Action::Delete, |_| Action::Add);
        let is_change = old.is_some() || new.is_some();
        return occurred([(is_change, action)]);
    };
    occurred([
        (
            old.is_unschedulable && !new.is_unschedulable,
            Action::UpdateNodeTaint,
        ),
        (
            old.allocatable_amounts != new.allocatable_amounts,
            Action::UpdateNodeAllocatable,
        ),
        (old.labels != new.labels, Action::UpdateNodeLabel),
        (old.taints != new.taints, Action::UpdateNodeTaint),
        (
            old.conditions != new.conditions,
            Action::UpdateNodeCondition,
        ),
        (
            old.annotations != new.annotations,
            Action::UpdateNodeAnnotation,
        ),
        (
            old.declared_features != new.declared_features,
            Action::UpdateNodeDeclaredFeature,
        ),
    ])
}

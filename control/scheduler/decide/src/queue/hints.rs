//! The answers of plugins: whether an event may make a pod that they rejected schedulable.

mod inter_pod_affinity;
mod node_resources_fit;
mod pod_topology_spread;
mod volumes;

use super::events::{Action, Change, Event, Object};
use crate::node::Node;
use crate::plugins::{Cycle, volume_restrictions};
use crate::pod::Pod;
use crate::ports::UsedPorts;
use crate::status::Plugin;
use crate::taints::{admits, admits_cordoned};
use crate::volumes::PodVolume;

/// Whether the event may help; a plugin that does not register for it answers no.
pub(super) fn may_help(plugin: Plugin, cycle: Cycle<'_>, event: Event, change: Change<'_>) -> bool {
    match change {
        Change::Node { old, new } => {
            is_woken_by_taints(plugin, event.action)
                || registers_for_nodes(plugin, event.action) && after_node(plugin, cycle, old, new)
        }
        Change::Pod { old, new } => {
            event.object != Object::Node
                && registers_for_pods(plugin, event.action)
                && after_pod(plugin, cycle, old, new)
        }
        Change::Volume {
            kind,
            namespace,
            change,
        } => volumes::may_help(plugin, cycle.pod, (kind, change), namespace),
    }
}

/// A plugin that registers for new nodes and not for taints is woken by each change of taints, as in kube-scheduler.
fn is_woken_by_taints(plugin: Plugin, action: Action) -> bool {
    action == Action::UpdateNodeTaint
        && registers_for_nodes(plugin, Action::Add)
        && !registers_for_nodes(plugin, action)
}

fn registers_for_nodes(plugin: Plugin, action: Action) -> bool {
    use Action::{Add, Delete, UpdateNodeAllocatable, UpdateNodeLabel, UpdateNodeTaint};
    match plugin {
        Plugin::NodeUnschedulable | Plugin::TaintToleration => {
            matches!(action, Add | UpdateNodeTaint)
        }
        Plugin::NodeName | Plugin::NodePorts | Plugin::VolumeRestrictions => action == Add,
        Plugin::NodeAffinity
        | Plugin::VolumeBinding
        | Plugin::VolumeZone
        | Plugin::InterPodAffinity => matches!(action, Add | UpdateNodeLabel),
        Plugin::NodeResourcesFit => matches!(action, Add | UpdateNodeAllocatable),
        Plugin::PodTopologySpread => {
            matches!(action, Add | Delete | UpdateNodeLabel | UpdateNodeTaint)
        }
        _ => false,
    }
}

fn registers_for_pods(plugin: Plugin, action: Action) -> bool {
    use Action::{
        Add, Delete, UpdatePodLabel, UpdatePodScaleDown, UpdatePodSchedulingGatesEliminated,
        UpdatePodToleration,
    };
    match plugin {
        Plugin::SchedulingGates => action == UpdatePodSchedulingGatesEliminated,
        Plugin::NodeUnschedulable | Plugin::TaintToleration => action == UpdatePodToleration,
        Plugin::NodePorts | Plugin::VolumeRestrictions | Plugin::NodeVolumeLimits => {
            action == Delete
        }
        Plugin::NodeResourcesFit => matches!(action, Delete | UpdatePodScaleDown),
        Plugin::PodTopologySpread => {
            matches!(action, Add | UpdatePodLabel | UpdatePodToleration | Delete)
        }
        Plugin::InterPodAffinity => matches!(action, Add | UpdatePodLabel | Delete),
        _ => false,
    }
}

fn after_node(plugin: Plugin, cycle: Cycle<'_>, old: Option<&Node>, new: Option<&Node>) -> bool {
    if plugin == Plugin::PodTopologySpread {
        return pod_topology_spread::after_node(cycle, old, new);
    }
    let Some(new) = new else {
        return false;
    };
    match plugin {
        Plugin::NodeUnschedulable => {
            !new.is_unschedulable && old.is_none_or(|old| old.is_unschedulable)
        }
        Plugin::TaintToleration => {
            let admits = |node: &Node| admits(&node.taints, &cycle.pod.tolerations);
            admits(new) && !old.is_some_and(admits)
        }
        Plugin::NodeAffinity => node_affinity(cycle, old, new),
        Plugin::NodeResourcesFit => node_resources_fit::after_node(cycle.pod, old, new),
        Plugin::InterPodAffinity => inter_pod_affinity::after_node(cycle.pod, old, new),
        _ => true,
    }
}

/// Whether the node matches now, and did not before. Malformed terms may help: nothing better is known.
fn node_affinity(cycle: Cycle<'_>, old: Option<&Node>, new: &Node) -> bool {
    let added = cycle.profile.node_affinity.required.as_ref();
    if added.is_some_and(|added| !added.matches(&new.labels, Some(&new.name))) {
        return false;
    }
    let required = &cycle.pod.required_node;
    let matches = |node: &Node| required.matches(&node.labels, &node.name);
    if !matches(new) {
        let terms = required.terms.as_ref();
        return required.has_labels_of(new) && terms.is_some_and(|terms| terms.errors().is_some());
    }
    !old.is_some_and(matches)
}

fn after_pod(plugin: Plugin, cycle: Cycle<'_>, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let pod = cycle.pod;
    let is_own = new.is_some_and(|new| is_same(new, pod));
    match (plugin, old) {
        (Plugin::SchedulingGates | Plugin::TaintToleration, _) => is_own,
        (Plugin::NodeUnschedulable, _) => {
            is_own && new.is_some_and(|new| admits_cordoned(&new.tolerations))
        }
        (Plugin::NodePorts, Some(old)) => old.is_placed() && frees_port(pod, old),
        (Plugin::VolumeRestrictions, Some(old)) => frees_volume(pod, old),
        (Plugin::NodeVolumeLimits, Some(old)) => old.is_placed() && attaches(old),
        (Plugin::NodeResourcesFit, _) => node_resources_fit::after_pod(pod, old, new),
        (Plugin::PodTopologySpread, _) => pod_topology_spread::after_pod(cycle, old, new),
        (Plugin::InterPodAffinity, _) => inter_pod_affinity::after_pod(pod, old, new),
        _ => false,
    }
}

fn is_same(one: &Pod, other: &Pod) -> bool {
    one.key == other.key && one.uid == other.uid
}

fn frees_port(pod: &Pod, deleted: &Pod) -> bool {
    let mut used = UsedPorts::default();
    used.add(&deleted.ports);
    used.conflict(&pod.ports)
}

fn frees_volume(pod: &Pod, deleted: &Pod) -> bool {
    let is_shared =
        |volume: &PodVolume| matches!(volume, PodVolume::Claim(_)) && pod.volumes.contains(volume);
    deleted.key.namespace == pod.key.namespace
        && (volume_restrictions::conflict(pod, deleted) || deleted.volumes.iter().any(is_shared))
}

/// Whether a pod has volumes that count against a node's limits.
fn attaches(pod: &Pod) -> bool {
    let counts = |volume: &PodVolume| !matches!(volume, PodVolume::Disk(_));
    pod.volumes.iter().any(counts)
}

//! PodTopologySpread: pods that count in a constraint, and nodes that change domains.

use std::borrow::Cow;

use crate::node::Node;
use crate::plugins::Cycle;
use crate::plugins::pod_topology_spread::constraints;
use crate::pod::Pod;
use crate::spread::{Action, Constraint};

fn is_involved(other: &Pod, pod: &Pod) -> bool {
    super::is_same(other, pod) || other.is_placed() && other.key.namespace == pod.key.namespace
}

/// Whether a change of a pod may help.
pub(super) fn after_pod(cycle: Cycle<'_>, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let mut both = old.into_iter().chain(new);
    if !both.all(|other| is_involved(other, cycle.pod)) {
        return false;
    }
    // Nothing is known of constraints that are malformed.
    let Ok(constraints) = constraints(cycle, Action::DoNotSchedule) else {
        return true;
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let honors_taints = constraints.iter().any(|one| one.honors_taints());
            let is_own = super::is_same(new, cycle.pod);
            let counts =
                |one: &Cow<'_, Constraint>| one.selects(&old.labels) != one.selects(&new.labels);
            is_own && old.tolerations != new.tolerations && honors_taints
                || constraints.iter().any(counts)
        }
        (None, Some(other)) | (Some(other), None) => {
            constraints.iter().any(|one| one.selects(&other.labels))
        }
        (None, None) => false,
    }
}

/// Whether a change of a node may help.
pub(super) fn after_node(cycle: Cycle<'_>, old: Option<&Node>, new: Option<&Node>) -> bool {
    let Ok(constraints) = constraints(cycle, Action::DoNotSchedule) else {
        return true;
    };
    let is_domain =
        |node: &Node| Constraint::all_keyed(constraints.iter().map(Cow::as_ref), &node.labels);
    let (Some(old), Some(new)) = (old, new) else {
        return old.or(new).is_some_and(is_domain);
    };
    let moves = |one: &Cow<'_, Constraint>| {
        old.labels.get(&one.topology_key) != new.labels.get(&one.topology_key)
    };
    is_domain(old) != is_domain(new)
        || is_domain(new) && (constraints.iter().any(moves) || old.taints != new.taints)
}

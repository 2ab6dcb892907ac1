//! InterPodAffinity: pods that a term selects, and nodes that change topologies.

use crate::affinity::Term;
use crate::node::Node;
use crate::plugins::inter_pod_affinity::all_select;
use crate::pod::Pod;

/// Whether a change of a pod may help.
pub(super) fn after_pod(pod: &Pod, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    if old.is_some() && new.is_some_and(|new| super::is_same(new, pod)) {
        return true;
    }
    if !old.into_iter().chain(new).all(Pod::is_placed) {
        return false;
    }
    // Nothing is known of terms that are malformed.
    if pod.affinity.has_required_error {
        return true;
    }
    let wanted = |other: &Pod| all_select(pod.affinity.required.iter(), other);
    let unwanted = |other: &Pod| all_select(pod.affinity.required_anti.iter(), other);
    match (old, new) {
        (Some(old), Some(new)) => !wanted(old) && wanted(new) || unwanted(old) && !unwanted(new),
        (None, Some(new)) => wanted(new),
        (Some(old), None) => {
            let theirs = &old.affinity;
            unwanted(old)
                || theirs.has_required_error
                || all_select(theirs.required_anti.iter(), pod)
        }
        (None, None) => false,
    }
}

/// Whether a change of a node may help.
pub(super) fn after_node(pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let affinity = &pod.affinity;
    if affinity.has_required_error {
        return true;
    }
    let value = |node: &'_ Node, term: &Term| node.labels.get(&term.topology_key).cloned();
    let joins = |term: &Term| {
        let now = value(new, term);
        now.is_some() && now != old.and_then(|old| value(old, term))
    };
    let leaves = |term: &Term| {
        old.is_none_or(|old| {
            let before = value(old, term);
            before.is_some() && before != value(new, term)
        })
    };
    affinity.required.iter().any(joins) || affinity.required_anti.iter().any(leaves)
}

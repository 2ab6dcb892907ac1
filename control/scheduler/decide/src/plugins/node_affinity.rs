//! NodeAffinity: node selectors, required and preferred node affinity, and those that the profile adds.

use crate::node_selector::{NamedNodes, Preferences};
use crate::node_state::NodeState;
use crate::plugins::{Cycle, PreFilter, Scorer};
use crate::pod::Pod;
use crate::status::Status;

struct Preferred<'a> {
    of_profile: Option<&'a Preferences>,
    of_pod: Option<&'a Preferences>,
}

/// Narrows the nodes to those that each required term names.
pub(crate) fn pre_filter(cycle: Cycle<'_>) -> Result<PreFilter, Status> {
    let required = &cycle.pod.required_node;
    if !required.is_some() && cycle.profile.node_affinity.required.is_none() {
        return Ok(PreFilter::Skip);
    }
    match required.named() {
        NamedNodes::All => Ok(PreFilter::Done),
        NamedNodes::Only(names) if names.is_empty() => {
            Err(Status::unresolvable("pod affinity terms conflict"))
        }
        NamedNodes::Only(names) => Ok(PreFilter::Nodes(names)),
    }
}

/// Rejects nodes that the profile's or the pod's own requirements exclude.
pub(crate) fn filter(cycle: Cycle<'_>, node: &NodeState) -> Result<(), Status> {
    let (labels, name) = (&node.node.labels, &*node.name);
    let added = cycle.profile.node_affinity.required.as_ref();
    if added.is_some_and(|added| !added.matches(labels, Some(name))) {
        let reason = "node(s) didn't match scheduler-enforced node affinity";
        return Err(Status::unresolvable(reason));
    }
    if cycle.pod.required_node.matches(labels, name) {
        return Ok(());
    }
    let reason = "node(s) didn't match Pod's node affinity/selector";
    Err(Status::unresolvable(reason))
}

/// A preferred term that is malformed fails the attempt once nodes are scored.
pub(crate) fn check(pod: &Pod) -> Result<(), String> {
    match &pod.preferred_nodes {
        Some(Err(error)) => Err(error.clone()),
        _ => Ok(()),
    }
}

/// The score: the sum of the weights of the preferred terms that a node matches.
pub(crate) fn scorer<'a>(cycle: Cycle<'a>) -> Option<Box<dyn Scorer + 'a>> {
    let of_profile = cycle.profile.node_affinity.preferred.as_ref();
    let of_pod = cycle.pod.preferred_nodes.as_ref();
    let of_pod = of_pod.and_then(|parsed| parsed.as_ref().ok());
    if of_pod.is_none() && of_profile.is_none() {
        return None;
    }
    Some(Box::new(Preferred { of_profile, of_pod }))
}

impl Scorer for Preferred<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        let all = [self.of_profile, self.of_pod].into_iter().flatten();
        let scores = all.map(|terms| terms.score(&node.node.labels, &node.node.name));
        scores.sum()
    }
}

//! PodTopologySpread: pods of a kind in equal numbers over zones, nodes or other domains.

pub(crate) mod filter;
pub(crate) mod score;

use std::borrow::Cow;

use crate::node_state::NodeState;
use crate::plugins::Cycle;
use crate::selector::Selector;
use crate::spread::{Action, Constraint};

/// The label of a node's own name: its domains are single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The constraints of a pod with an action: its own, or those of the profile for the pods of its Services and controller.
pub(crate) fn constraints(
    cycle: Cycle<'_>,
    action: Action,
) -> Result<Vec<Cow<'_, Constraint>>, &str> {
    if let Some(own) = &cycle.pod.spread {
        let own = own.iter().filter(|(of, _)| *of == action);
        let parsed = own.map(|(_, one)| one.as_ref().map(Cow::Borrowed));
        return parsed.collect::<Result<_, _>>().map_err(String::as_str);
    }
    let default = cycle.profile.spread.constraints.iter();
    let default = default.filter(|one| one.action == action);
    let default: Vec<_> = default.collect();
    if default.is_empty() {
        return Ok(Vec::new());
    }
    let selector = cycle.snapshot.workloads.selector(cycle.pod);
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let selecting = |one: &Constraint| {
        let mut one = one.clone();
        one.selector = selector.clone();
        Cow::Owned(one)
    };
    Ok(default.into_iter().map(selecting).collect())
}

/// The pods on a node that a selector counts; an empty selector counts none.
fn matching(node: &NodeState, selector: &Selector, namespace: &str) -> i64 {
    if selector.is_empty() {
        return 0;
    }
    let pods = node.pods.iter().filter(|pod| {
        !pod.is_terminating && pod.key.namespace == namespace && selector.matches(&pod.labels)
    });
    i64::try_from(pods.count()).unwrap_or(i64::MAX)
}

//! Filters on nodes: one after another, with the pods that are nominated to a node and without them.

use std::sync::Arc;

use super::Verdicts;
use crate::node_state::NodeState;
use crate::plugins::{self, Cycle, CycleState};
use crate::pod::Pod;
use crate::status::{Code, Status};

/// The nodes that were looked at.
pub(super) struct Looked<'a> {
    pub(super) feasible: Vec<&'a NodeState>,
    pub(super) rejected: Verdicts,
    /// The number of nodes that were looked at, with the one that was one too many.
    pub(super) visited: usize,
    /// The error at which the search ended.
    pub(super) error: Option<String>,
}

/// Looks at nodes from `start` on, all around, until one more than `limit` are feasible. That one has no verdict.
pub(super) fn look<'a>(
    cycle: Cycle<'_>,
    state: &CycleState,
    nodes: &[&'a NodeState],
    start: usize,
    limit: usize,
) -> Looked<'a> {
    let mut looked = Looked {
        feasible: Vec::new(),
        rejected: Verdicts::new(),
        visited: 0,
        error: None,
    };
    for at in 0..nodes.len() {
        let node = nodes[(start + at) % nodes.len()];
        looked.visited += 1;
        match passes(cycle, state, node) {
            Ok(()) if looked.feasible.len() == limit => return looked,
            Ok(()) => looked.feasible.push(node),
            Err(status) if status.code == Code::Error => {
                looked.error = Some(status.message());
                return looked;
            }
            Err(status) => {
                looked.rejected.insert(node.name.to_string(), status);
            }
        }
    }
    looked
}

/// Whether a node passes all filters. If pods of the same or a higher priority are nominated to it, it must pass with
/// them, and without them.
pub(crate) fn passes(cycle: Cycle<'_>, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    let pod = cycle.pod;
    let matters = |other: &&Arc<Pod>| other.priority >= pod.priority && other.key != pod.key;
    let nominated = cycle.snapshot.nominated(&node.name).iter();
    let nominated: Vec<_> = nominated.filter(matters).collect();
    if !nominated.is_empty() {
        let (mut node, mut state) = (node.clone(), state.clone());
        for other in nominated {
            node.add(other.clone());
            plugins::count(cycle, &mut state, other, &node, 1);
        }
        passes_alone(cycle, &state, &node)?;
    }
    passes_alone(cycle, state, node)
}

fn passes_alone(cycle: Cycle<'_>, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    for &plugin in &cycle.profile.filter {
        if state.skipped.contains(&plugin) {
            continue;
        }
        plugins::filter(plugin, cycle, state, node).map_err(|mut status| {
            if status.code == Code::Error {
                let message = status.message();
                let plugin = plugin.to_string();
                status.reasons = vec![format!("running {plugin:?} filter plugin: {message}")];
            }
            status.of(plugin)
        })?;
    }
    Ok(())
}

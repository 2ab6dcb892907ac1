//! NodePorts: host ports that are in use.

use crate::node_state::NodeState;
use crate::plugins::{Cycle, PreFilter};
use crate::pod::Pod;
use crate::status::Status;

/// Skips pods without host ports.
pub(crate) fn pre_filter(cycle: Cycle<'_>) -> PreFilter {
    if cycle.pod.ports.is_empty() {
        PreFilter::Skip
    } else {
        PreFilter::Done
    }
}

/// Rejects nodes where a host port of the pod is in use.
pub(crate) fn filter(pod: &Pod, node: &NodeState) -> Result<(), Status> {
    if !node.ports.conflict(&pod.ports) {
        return Ok(());
    }
    let reason = "node(s) didn't have free ports for the requested pod ports";
    Err(Status::unschedulable(reason))
}

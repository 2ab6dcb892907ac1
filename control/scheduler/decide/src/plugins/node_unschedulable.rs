//! NodeUnschedulable: no pods on cordoned nodes, but those that tolerate it.

use crate::node_state::NodeState;
use crate::pod::Pod;
use crate::status::Status;
use crate::taints::admits_cordoned;

/// Rejects cordoned nodes.
pub(crate) fn filter(pod: &Pod, node: &NodeState) -> Result<(), Status> {
    if !node.node.is_unschedulable || admits_cordoned(&pod.tolerations) {
        return Ok(());
    }
    Err(Status::unresolvable("node(s) were unschedulable"))
}

//! NodeName: a pod that names its node goes to no other.

use crate::node_state::NodeState;
use crate::pod::Pod;
use crate::status::Status;

/// Rejects all nodes but the named one.
pub(crate) fn filter(pod: &Pod, node: &NodeState) -> Result<(), Status> {
    if pod.node_name().is_empty() || pod.node_name() == &*node.name {
        return Ok(());
    }
    let reason = "node(s) didn't match the requested node name";
    Err(Status::unresolvable(reason))
}

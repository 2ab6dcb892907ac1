//! TaintToleration: taints keep pods away, or are rather avoided.

use crate::node_state::NodeState;
use crate::plugins::Scorer;
use crate::pod::Pod;
use crate::status::Status;
use crate::taints;

/// The score: the number of taints that the pod would rather avoid, fewer are better.
pub(crate) struct Unwanted<'a>(pub(crate) &'a Pod);

/// Rejects nodes with taints that the pod does not tolerate.
pub(crate) fn filter(pod: &Pod, node: &NodeState) -> Result<(), Status> {
    if taints::admits(&node.node.taints, &pod.tolerations) {
        return Ok(());
    }
    Err(Status::unresolvable("node(s) had untolerated taint(s)"))
}

impl Scorer for Unwanted<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        taints::unwanted(&node.node.taints, &self.0.tolerations)
    }
}

//! SchedulingGates: a pod with gates does not enter the queue.

use crate::pod::Pod;
use crate::status::{Plugin, Status};

/// The verdict that keeps a pod out of the queue.
pub(crate) fn pre_enqueue(pod: &Pod) -> Option<Status> {
    let gates = pod.gates.join(" ");
    let reason = format!("waiting for scheduling gates: [{gates}]");
    (!pod.gates.is_empty()).then(|| Status::unresolvable(reason).of(Plugin::SchedulingGates))
}

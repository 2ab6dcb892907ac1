//! NodeResourcesFit: pods that go or shrink, nodes that come or grow.

use crate::node::Node;
use crate::plugins::node_resources_fit::shortages;
use crate::pod::Pod;
use crate::profile::FitArgs;
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};

/// Whether a change of a pod may help.
pub(super) fn after_pod(pod: &Pod, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    match (old, new) {
        (Some(old), None) => old.is_placed(),
        (Some(old), Some(new)) => {
            super::is_same(new, pod) || !new.node_name().is_empty() && shrinks(pod, old, new)
        }
        _ => false,
    }
}

/// Whether a pod requests less of something that `pod` requests.
fn shrinks(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let before = Resources::positive(&old.requests.actual);
    let now = Resources::positive(&new.requests.actual);
    let requested = pod
        .requests
        .actual
        .iter()
        .filter(|(_, amount)| !amount.is_zero());
    let mut names = requested.map(|(name, _)| name.as_str());
    names.any(|name| of(&before, name) > of(&now, name))
}

fn of(resources: &Resources, name: &str) -> i64 {
    match name {
        CPU => resources.cpu_milli,
        MEMORY => resources.memory,
        EPHEMERAL_STORAGE => resources.ephemeral_storage,
        _ => resources.scalar(name),
    }
}

/// Whether a node has enough for the pod if it is empty, and more than before.
pub(super) fn after_node(pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let request = &pod.requests.fit;
    let nothing = Resources::default();
    let lacks = shortages(request, &new.allocatable, &nothing, 0, &FitArgs::default());
    lacks.is_empty() && old.is_none_or(|old| grows(request, &old.allocatable, &new.allocatable))
}

fn grows(request: &Resources, old: &Resources, new: &Resources) -> bool {
    let scalars = request.scalars.iter().filter(|(_, amount)| **amount != 0);
    new.pods > old.pods
        || request.cpu_milli > 0 && new.cpu_milli > old.cpu_milli
        || request.memory > 0 && new.memory > old.memory
        || request.ephemeral_storage > 0 && new.ephemeral_storage > old.ephemeral_storage
        || scalars
            .into_iter()
            .any(|(name, _)| new.scalar(name) > old.scalar(name))
}

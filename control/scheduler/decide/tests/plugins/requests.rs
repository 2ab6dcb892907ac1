//! The resource requests of a pod: of its containers, its pod-level resources and its overhead.
//!
//! Sources: "Init containers: resource sharing within containers", "Sidecar containers: resource sharing within containers",
//! "Pod Overhead", "Assign Pod-level CPU and memory resources",
//! "Resize CPU and Memory Resources assigned to Containers" (kubernetes.io).

mod input;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};

use crate::cluster::{Cluster, spec};
use crate::quantity::{Amounts, amounts, counted};
pub(crate) use input::{bound_pod, node, pod};

/// What a container counts for the scores if it does not say.
const MISSING: [(&str, i128); 2] = [
    ("cpu", 100_000_000),
    ("memory", 200 * 1024 * 1024 * 1_000_000_000),
];

/// The amounts that fill what containers do not request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Nothing,
    /// For the score of NodeResourcesFit.
    Defaults,
}

/// A resource that is none of the built-in ones, without an API group of Kubernetes.
pub(crate) fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// A resource that a pod does not use unless it requests it.
pub(crate) fn is_scalar(resource: &str) -> bool {
    is_extended(resource) || resource.starts_with("hugepages-")
}

/// The requests of a pod that is on a node, or that the filter looks at.
pub(crate) fn real(pod: &Pod) -> Amounts {
    with_pod_level(pod, Missing::Nothing)
}

/// The requests of a pod that is on a node, for the score of NodeResourcesFit.
pub(crate) fn nonzero(pod: &Pod) -> Amounts {
    let real = real(pod);
    let mut filled = with_pod_level(pod, Missing::Defaults);
    if !pod_level(pod).is_empty() {
        // With pod-level requests, only what the whole pod lacks is filled.
        filled.retain(|resource, _| !real.contains_key(resource));
        filled.extend(real);
    }
    filled
}

/// The requests of the pod to schedule, for the score of NodeResourcesFit: without those of the pod level.
pub(crate) fn to_score(pod: &Pod) -> Amounts {
    with_overhead(pod, of_containers(pod, Missing::Defaults))
}

/// What the pods on a node request of a resource; each pod's sum is rounded up.
pub(crate) fn used(
    cluster: &Cluster,
    node: &Node,
    resource: &str,
    requests: fn(&Pod) -> Amounts,
) -> i128 {
    cluster
        .pods_on(node)
        .map(|pod| count(&requests(pod), resource))
        .sum()
}

pub(crate) fn allocatable(node: &Node, resource: &str) -> i128 {
    let status = node.status.as_ref();
    count(
        &amounts(status.and_then(|status| status.allocatable.as_ref())),
        resource,
    )
}

/// An amount as the scheduler counts it.
pub(crate) fn count(amounts: &Amounts, resource: &str) -> i128 {
    counted(resource, amounts.get(resource).copied().unwrap_or(0))
}

fn pod_level(pod: &Pod) -> Amounts {
    let resources = spec(pod).resources.as_ref();
    amounts(resources.and_then(|resources| resources.requests.as_ref()))
}

fn with_pod_level(pod: &Pod, missing: Missing) -> Amounts {
    let mut requests = of_containers(pod, missing);
    requests.extend(pod_level(pod));
    with_overhead(pod, requests)
}

fn with_overhead(pod: &Pod, mut requests: Amounts) -> Amounts {
    add(&mut requests, &amounts(spec(pod).overhead.as_ref()));
    requests
}

/// The larger of what runs together in the end, and of each step of the initialisation.
fn of_containers(pod: &Pod, missing: Missing) -> Amounts {
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for init in spec(pod).init_containers.iter().flatten() {
        let is_sidecar = init.restart_policy.as_deref() == Some("Always");
        let status = status(pod, init).filter(|_| is_sidecar);
        let mut step = sidecars.clone();
        add(&mut step, &of_container(pod, init, status, missing));
        if is_sidecar {
            sidecars = step.clone();
        }
        raise(&mut peak, &step);
    }
    let mut together = sidecars;
    for container in &spec(pod).containers {
        add(
            &mut together,
            &of_container(pod, container, status(pod, container), missing),
        );
    }
    raise(&mut together, &peak);
    together
}

/// During a resize, the largest of what is desired, what is allocated and what is actual; what is desired does not count if
/// it is infeasible.
fn of_container(
    pod: &Pod,
    container: &Container,
    status: Option<&ContainerStatus>,
    missing: Missing,
) -> Amounts {
    let resources = container.resources.as_ref();
    let mut requests = amounts(resources.and_then(|resources| resources.requests.as_ref()));
    if let Some(status) = status {
        if is_infeasible(pod) {
            requests.clear();
        }
        let actual = status.resources.as_ref();
        raise(
            &mut requests,
            &amounts(actual.and_then(|actual| actual.requests.as_ref())),
        );
        raise(&mut requests, &amounts(status.allocated_resources.as_ref()));
    }
    if missing == Missing::Defaults {
        for (resource, amount) in MISSING {
            requests.entry(resource.to_owned()).or_insert(amount);
        }
    }
    requests
}

/// The status of a container, by its name.
fn status<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let inits = status.init_container_statuses.iter().flatten();
    let mut all = status.container_statuses.iter().flatten().chain(inits);
    all.find(|one| one.name == container.name && one.resources.is_some())
}

fn is_infeasible(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .any(|one| one.type_ == "PodResizePending" && one.reason.as_deref() == Some("Infeasible"))
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *sum.entry(resource.clone()).or_default() += amount;
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let present = to.entry(resource.clone()).or_default();
        *present = (*present).max(*amount);
    }
}

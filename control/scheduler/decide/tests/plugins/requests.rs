//! The resource requests of a pod: of its containers, its pod-level resources and its overhead.
//!
//! Sources: "Init containers: resource sharing within containers", "Sidecar containers: resource sharing within containers",
//! "Pod Overhead", "Assign Pod-level CPU and memory resources" (kubernetes.io).

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, some_of, spec};
use crate::quantity::{Amounts, amounts, counted};

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
        let own = of_container(init, missing);
        let mut step = sidecars.clone();
        add(&mut step, &own);
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = step.clone();
        }
        raise(&mut peak, &step);
    }
    let mut together = sidecars;
    for container in &spec(pod).containers {
        add(&mut together, &of_container(container, missing));
    }
    raise(&mut together, &peak);
    together
}

fn of_container(container: &Container, missing: Missing) -> Amounts {
    let resources = container.resources.as_ref();
    let mut requests = amounts(resources.and_then(|resources| resources.requests.as_ref()));
    if missing == Missing::Defaults {
        for (resource, amount) in MISSING {
            requests.entry(resource.to_owned()).or_insert(amount);
        }
    }
    requests
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

const REQUESTS: &[(&str, &[&str])] = &[
    ("cpu", &["0", "50m", "100m", "0.25", "1", "1500m", "3"]),
    (
        "memory",
        &[
            "0",
            "1500m",
            "0.7",
            "123456789",
            "200Mi",
            "256M",
            "0.5Gi",
            "1e9",
            "3Gi",
        ],
    ),
    ("ephemeral-storage", &["0", "1Gi", "5G"]),
    ("example.com/gpu", &["0", "1", "2", "5"]),
    ("hugepages-2Mi", &["2Mi", "4Mi"]),
];
const POD_LEVEL: &[(&str, &[&str])] = &[
    ("cpu", &["0", "1", "2500m"]),
    ("memory", &["0", "1Gi", "777777777"]),
];
const OVERHEAD: &[(&str, &[&str])] = &[("cpu", &["10m", "250m"]), ("memory", &["1", "100Mi"])];
const ALLOCATABLE: &[(&str, &[&str])] = &[
    ("cpu", &["0", "1", "1999m", "4", "8", "16"]),
    (
        "memory",
        &["0", "1Gi", "4000000001", "8Gi", "31Gi", "12345678Ki"],
    ),
    ("ephemeral-storage", &["0", "10Gi", "7G"]),
    ("example.com/gpu", &["0", "3", "8"]),
    ("hugepages-2Mi", &["8Mi", "64Mi"]),
];

/// A template of a pod with requests of all kinds.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let container = some_of(REQUESTS)
        .prop_map(|requests| json!({"name": "c", "resources": {"requests": requests}}));
    let init = (some_of(REQUESTS), any::<bool>()).prop_map(|(requests, is_sidecar)| {
        let mut init = json!({"name": "c", "resources": {"requests": requests}});
        if is_sidecar {
            init["restartPolicy"] = "Always".into();
        }
        init
    });
    let pod_level = prop::option::weighted(0.3, some_of(POD_LEVEL));
    let overhead = prop::option::weighted(0.3, some_of(OVERHEAD));
    let containers = prop::collection::vec(container, 1..4);
    (containers, array(init, 3), pod_level, overhead).prop_map(
        |(containers, inits, pod_level, overhead)| {
            let mut pod = json!({"spec": {"containers": containers, "initContainers": inits}});
            if let Some(requests) = pod_level {
                pod["spec"]["resources"] = json!({"requests": requests});
            }
            if let Some(overhead) = overhead {
                pod["spec"]["overhead"] = overhead;
            }
            pod
        },
    )
}

/// A template of a node with resources of all kinds.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    (some_of(ALLOCATABLE), 0..9_u8).prop_map(|(mut allocatable, pods)| {
        allocatable["pods"] = pods.to_string().into();
        json!({"status": {"allocatable": allocatable}})
    })
}

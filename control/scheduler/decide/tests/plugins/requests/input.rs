//! Random requests, and amounts of nodes.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{array, some_of};

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
    ("cpu", &["0", "1999m", "4", "8", "16", "31"]),
    ("memory", &["0", "4000000001", "8Gi", "31Gi", "12345678Ki"]),
    ("ephemeral-storage", &["0", "10Gi", "37G"]),
    ("example.com/gpu", &["0", "13", "28"]),
    ("hugepages-2Mi", &["8Mi", "64Mi"]),
];

/// A template of a pod with requests of all kinds.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let init = (container(), any::<bool>()).prop_map(|(mut init, is_sidecar)| {
        if is_sidecar {
            init["restartPolicy"] = "Always".into();
        }
        init
    });
    let pod_level = prop::option::weighted(0.3, some_of(POD_LEVEL));
    let overhead = prop::option::weighted(0.3, some_of(OVERHEAD));
    let containers = prop::collection::vec(container(), 1..4).prop_map(Value::Array);
    (containers, array(init, 3), pod_level, overhead).prop_map(
        |(containers, inits, pod_level, overhead)| {
            let (containers, inits) = (named("c", containers), named("i", inits));
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

/// A template of a pod that is there, and may be under resize.
pub(crate) fn bound_pod() -> impl Strategy<Value = Value> {
    let statuses = || array(status(), 3);
    let reason = prop_oneof![Just(None), Just(Some("Infeasible")), Just(Some("Deferred"))];
    let resize = prop::option::weighted(0.3, (statuses(), statuses(), reason));
    (pod(), resize).prop_map(|(mut pod, resize)| {
        let Some((containers, inits, reason)) = resize else {
            return pod;
        };
        // Not together with pod-level resources.
        pod["spec"]["resources"] = Value::Null;
        let condition = reason.map(
            |reason| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]),
        );
        pod["status"] = json!({"containerStatuses": named("c", containers),
            "initContainerStatuses": named("i", inits), "conditions": condition});
        pod
    })
}

fn container() -> impl Strategy<Value = Value> {
    some_of(REQUESTS).prop_map(|requests| json!({"resources": {"requests": requests}}))
}

fn status() -> impl Strategy<Value = Value> {
    let allocated = prop::option::of(some_of(REQUESTS));
    (some_of(REQUESTS), allocated).prop_map(|(actual, allocated)| {
        json!({"image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": actual}, "allocatedResources": allocated})
    })
}

/// Containers, or their statuses, with names by their position.
fn named(prefix: &str, mut all: Value) -> Value {
    for (nth, one) in all.as_array_mut().into_iter().flatten().enumerate() {
        one["name"] = format!("{prefix}{nth}").into();
    }
    all
}

/// A template of a node with resources of all kinds: ample ones, and sometimes less, none or an odd amount.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    let ample = json!({"cpu": "64", "memory": "128Gi", "ephemeral-storage": "200Gi", "example.com/gpu": "90",
        "hugepages-2Mi": "640Mi"});
    let base = prop_oneof![9 => Just(ample), 1 => Just(json!({}))];
    let less = prop::option::weighted(0.6, some_of(ALLOCATABLE));
    let pods = prop_oneof![5 => 5..20_u8, 1 => 0..5_u8];
    (base, less, pods).prop_map(|(mut allocatable, less, pods)| {
        for (resource, amount) in less.iter().filter_map(Value::as_object).flatten() {
            allocatable[resource] = amount.clone();
        }
        allocatable["pods"] = pods.to_string().into();
        json!({"status": {"allocatable": allocatable}})
    })
}

//! Random clusters, pods and arguments with constraints.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, most_of, object, one_of, some_of};
use crate::selector;
use crate::workloads::{self, KINDS};

const LABELS: &[(&str, &[&str])] = &[("app", &["a", "b"]), ("tier", &["x", "y"])];
const NODE_LABELS: &[(&str, &[&str])] = &[
    ("topology.kubernetes.io/zone", &["z0", "z1", "z2"]),
    ("rack", &["r0", "r1"]),
    ("disk", &["ssd", "hdd"]),
];
const KEYS: &[&str] = &[
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "rack",
];
const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
const POLICIES: &[&str] = &["Honor", "Ignore"];

/// A template of a pod that can be of a workload, select nodes and tolerate taints.
pub(super) fn pod() -> impl Strategy<Value = Value> {
    let owner = prop::option::weighted(0.4, (one_of(KINDS), one_of(&["w0", "w1"]), any::<bool>()));
    let tolerations = prop::option::weighted(0.3, one_of(&["a", "b"]));
    let disk = prop::option::weighted(0.3, one_of(&["ssd", "hdd"]));
    let labels = prop_oneof![2 => Just(json!({"app": "a"})), 1 => some_of(LABELS)];
    let meta = (labels, prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (meta, owner, tolerations, disk).prop_map(
        |((labels, is_elsewhere, is_terminating), owner, toleration, disk)| {
            let namespace = if is_elsewhere { "other" } else { "default" };
            let mut pod = json!({"metadata": {"labels": labels, "namespace": namespace}, "spec": {}});
            if is_terminating {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            if let Some((kind, name, is_controller)) = owner {
                let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
                pod["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "name": name,
                    "uid": "u", "controller": is_controller}]);
            }
            if let Some(key) = toleration {
                pod["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
            }
            if let Some(disk) = disk {
                pod["spec"]["nodeSelector"] = json!({"disk": disk});
            }
            pod
        },
    )
}

/// The same with its own constraints.
pub(crate) fn constrained_pod() -> impl Strategy<Value = Value> {
    (pod(), array(constraint(), 3)).prop_map(|(mut pod, constraints)| {
        pod["spec"]["topologySpreadConstraints"] = distinct(constraints);
        pod
    })
}

fn constraint() -> impl Strategy<Value = Value> {
    let policies = || prop::option::of(one_of(POLICIES));
    let selector = prop::option::weighted(0.9, selector::random());
    let match_keys = prop::option::weighted(
        0.3,
        prop::sample::subsequence(vec!["tier", "absent"], 1..=2),
    );
    let domains_min = prop::option::of(1..4_u8);
    let max_skew = prop_oneof![2 => Just(1_u8), 1 => 2..4_u8];
    (one_of(KEYS), one_of(ACTIONS), max_skew, domains_min, policies(), policies(), selector, match_keys).prop_map(
        |(key, action, max_skew, domains_min, affinity, taints, selector, match_keys)| {
            let match_keys = match_keys.filter(|_| selector.is_some());
            let domains_min = domains_min.filter(|_| action == "DoNotSchedule");
            json!({"topologyKey": key, "whenUnsatisfiable": action, "maxSkew": max_skew, "minDomains": domains_min,
                "nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints, "labelSelector": selector,
                "matchLabelKeys": match_keys})
        },
    )
}

/// The constraints without those that repeat a key and an action, which the API refuses.
fn distinct(constraints: Value) -> Value {
    let mut seen = BTreeSet::new();
    let mut all: Vec<Value> = object(constraints);
    all.retain(|one| {
        seen.insert((
            one["topologyKey"].to_string(),
            one["whenUnsatisfiable"].to_string(),
        ))
    });
    all.into()
}

/// Constraints of a profile, and the arguments with them.
pub(super) fn listed() -> impl Strategy<Value = (Vec<TopologySpreadConstraint>, Value)> {
    let one = (one_of(KEYS), one_of(ACTIONS), 1..4_u8).prop_map(|(key, action, max_skew)| {
        json!({"topologyKey": key, "whenUnsatisfiable": action, "maxSkew": max_skew})
    });
    array(one, 3).prop_map(distinct).prop_map(|list| {
        (
            object(list.clone()),
            json!({"defaultingType": "List", "defaultConstraints": list}),
        )
    })
}

/// A template of a node with domains and taints.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    let effect = one_of(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
    let taint = (one_of(&["a", "b"]), effect)
        .prop_map(|(key, effect)| json!({"key": key, "effect": effect}));
    let taints = prop_oneof![3 => Just(json!([])), 1 => array(taint, 2)];
    (most_of(NODE_LABELS), taints).prop_map(
        |(labels, taints)| json!({"metadata": {"labels": labels}, "spec": {"taints": taints}}),
    )
}

/// A cluster with workloads.
pub(super) fn clusters() -> impl Strategy<Value = Cluster> {
    (cluster(node(), pod()), workloads::random()).prop_map(|(cluster, workloads)| Cluster {
        workloads,
        ..cluster
    })
}

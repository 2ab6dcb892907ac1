//! Random clusters and pods with affinities.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, most_of, one_of, some_of};
use crate::selector;

const LABELS: &[(&str, &[&str])] = &[("app", &["a", "b"]), ("tier", &["x", "y"])];
const NODE_LABELS: &[(&str, &[&str])] = &[
    ("topology.kubernetes.io/zone", &["z0", "z1"]),
    ("rack", &["r0", "r1", "r2"]),
];
const KEYS: &[&str] = &[
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "rack",
];
/// The last one has no object.
const NAMESPACES: &[&str] = &["default", "default", "other", "bare"];
const NAMESPACE_LABELS: &[(&str, &[&str])] = &[("app", &["a", "b"]), ("tier", &["x"])];

fn term() -> impl Strategy<Value = Value> {
    let labels = prop::option::weighted(0.95, selector::random());
    let namespaces = prop::option::weighted(
        0.3,
        prop::sample::subsequence(vec!["default", "other", "bare"], 0..3),
    );
    let namespace_selector = prop::option::weighted(0.3, selector::random());
    (one_of(KEYS), labels, namespaces, namespace_selector).prop_map(
        |(key, labels, namespaces, namespace_selector)| {
            json!({"topologyKey": key, "labelSelector": labels, "namespaces": namespaces,
                "namespaceSelector": namespace_selector})
        },
    )
}

/// Required and preferred terms, few of them, so that most pods fit somewhere.
fn terms(required_share: f64) -> impl Strategy<Value = Value> {
    // Sums of 100 have quotients that float64 truncates to one less.
    let weight = prop_oneof![1..=100_u8, one_of(&[29, 71, 42, 58, 100])];
    let weighted = (weight, term())
        .prop_map(|(weight, term)| json!({"weight": weight, "podAffinityTerm": term}));
    let required = prop::option::weighted(required_share, array(term(), 2));
    let preferred = prop::option::weighted(0.4, array(weighted, 2));
    (required, preferred).prop_map(|(required, preferred)| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred})
    })
}

/// A template of a pod with affinities.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    (one_of(NAMESPACES), some_of(LABELS), terms(0.3), terms(0.2)).prop_map(
        |(namespace, labels, near, far)| {
            json!({"metadata": {"namespace": namespace, "labels": labels},
            "spec": {"affinity": {"podAffinity": near, "podAntiAffinity": far}}})
        },
    )
}

/// A cluster with namespaces.
pub(super) fn clusters() -> impl Strategy<Value = Cluster> {
    let node = most_of(NODE_LABELS).prop_map(|labels| json!({"metadata": {"labels": labels}}));
    (
        cluster(node, pod()),
        some_of(NAMESPACE_LABELS),
        some_of(NAMESPACE_LABELS),
    )
        .prop_map(|(cluster, default, other)| {
            cluster.with_namespaces(&[("default", default), ("other", other)])
        })
}

//! The objects of a run.

use dormouse_scheduler_shard::Object;
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";

fn object<T: DeserializeOwned>(value: Value) -> Object<T> {
    Object::new(serde_json::from_value(value).unwrap())
}

/// A node with one to three CPUs.
pub(super) fn node(name: &str, random: &mut Rng) -> Object<Node> {
    let zone = format!("z{}", random.u8(0..3));
    let taints = match random.u8(0..4) {
        0 => json!([{"key": "a", "effect": "PreferNoSchedule"}]),
        _ => json!([]),
    };
    let images = match random.u8(0..2) {
        0 => json!([{"names": ["i:1"], "sizeBytes": 800_000_000}]),
        _ => json!([]),
    };
    let allocatable = json!({"cpu": random.u8(1..4).to_string(), "memory": "8Gi", "pods": "4"});
    object(
        json!({"metadata": {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}},
        "spec": {"taints": taints}, "status": {"allocatable": allocatable, "images": images}}),
    )
}

/// A pending pod; some have constraints, some a higher priority.
pub(super) fn pod(name: &str, random: &mut Rng) -> Object<Pod> {
    let app = format!("a{}", random.u8(0..3));
    let selector = json!({"matchLabels": {"app": app}});
    let spread = |action| json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": action, "labelSelector": selector}]);
    let spread = match random.u8(0..6) {
        0 => spread("DoNotSchedule"),
        1 => spread("ScheduleAnyway"),
        _ => json!([]),
    };
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector});
    let affinity = match random.u8(0..6) {
        0 => json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
        1 => json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 5, "podAffinityTerm": term}]}}),
        _ => json!({}),
    };
    let cpu = format!("{}m", u16::from(random.u8(0..8)) * 150);
    let container = json!({"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}});
    let priority = if random.u8(0..3) == 0 { 10 } else { 0 };
    object(
        json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"priority": priority, "affinity": affinity, "topologySpreadConstraints": spread, "containers": [container]}}),
    )
}

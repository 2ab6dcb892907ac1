//! The objects of a run: nodes of a few sizes in some zones, and equal pods.

use anyhow::{Context, Result};
use dormouse_scheduler_shard::Object;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

const ZONES: usize = 3;

pub(crate) fn node(index: usize) -> Result<Object<Node>> {
    let name = format!("node-{index}");
    let zone = format!("zone-{}", index % ZONES);
    let allocatable =
        json!({"cpu": (index % 4 * 8 + 8).to_string(), "memory": "256Gi", "pods": "110"});
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}});
    let node = serde_json::from_value(node).context("failed to make a node")?;
    Ok(Object::new(node))
}

pub(crate) fn pod(index: usize) -> Result<Object<Pod>> {
    let name = format!("pod-{index}");
    let container = json!({"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}});
    let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
        "spec": {"containers": [container]}});
    let pod = serde_json::from_value(pod).context("failed to make a pod")?;
    Ok(Object::new(pod))
}

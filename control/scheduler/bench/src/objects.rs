//! The objects of the load.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

/// A node of k8s-1m: 32 CPU, 256 GiB, 110 pods; or one with other resources.
pub(crate) fn node(index: usize, (cpu, memory): (&str, &str)) -> Result<Node> {
    let name = format!("node-{index:07}");
    let labels = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    serde_json::from_value(node).context("failed to make a node")
}

/// A pod with one container.
pub(crate) fn pod(name: &str, (cpu, memory): (&str, &str), priority: i32) -> Result<Pod> {
    let container = json!({"name": "c", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "load"}},
        "spec": {"containers": [container], "priority": priority}});
    serde_json::from_value(pod).context("failed to make a pod")
}

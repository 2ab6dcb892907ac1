//! Changes of nodes.

use std::sync::Arc;

use dormouse_scheduler_decide::Node;
use k8s_openapi::api::core::v1::{Node as ApiNode, Taint};
use k8s_openapi::jiff::Timestamp;

use super::State;
use crate::queue::Happened;

impl State {
    /// A node that cannot be read takes no pods.
    pub(super) fn apply_node(&mut self, now: Timestamp, name: &str, node: Option<&ApiNode>) {
        let parsed = node.and_then(|node| {
            let parsed = Node::parse(&with_taint(node));
            let warned = parsed.inspect_err(|error| {
                tracing::warn!(node = name, %error, "a node cannot be read: it gets no pods");
            });
            warned.ok().filter(|parsed| parsed.name() == name)
        });
        let Some(new) = parsed else {
            if let Some(old) = self.nodes.remove(name) {
                self.engine.remove_node(name);
                let old = Some(old);
                self.wake(now, Happened::Node { old, new: None });
            }
            return;
        };
        self.engine.set_node(new.clone());
        let new = Arc::new(new);
        let old = self.nodes.insert(name.to_owned(), Arc::clone(&new));
        let new = Some(new);
        self.wake(now, Happened::Node { old, new });
    }
}

/// A node with the taint that Kubernetes' node lifecycle controller gives to nodes that are not ready: in a store without
/// that controller, the condition stands alone.
fn with_taint(node: &ApiNode) -> ApiNode {
    let mut node = node.clone();
    let conditions = node.status.as_ref().and_then(|one| one.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let key = match ready.map(|ready| ready.status.as_str()) {
        Some("True") => return node,
        Some("False") => "node.kubernetes.io/not-ready",
        _ => "node.kubernetes.io/unreachable",
    };
    let taint = Taint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let spec = node.spec.get_or_insert_default();
    let taints = spec.taints.get_or_insert_default();
    if !taints
        .iter()
        .any(|one| one.key == taint.key && one.effect == taint.effect)
    {
        taints.push(taint);
    }
    node
}

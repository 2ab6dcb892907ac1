//! Changes of nodes.

use std::sync::Arc;

use dormouse_scheduler_decide::Node;
use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::jiff::Timestamp;

use super::State;
use crate::queue::Happened;

impl State {
    /// A node that cannot be read takes no pods.
    pub(super) fn apply_node(&mut self, now: Timestamp, name: &str, node: Option<&ApiNode>) {
        let parsed = node.and_then(|node| {
            let parsed = Node::parse(node);
            let warned = parsed.inspect_err(|error| {
                tracing::warn!(node = name, %error, "a node cannot be read: it gets no pods");
            });
            warned.ok().filter(|parsed| parsed.name() == name)
        });
        let Some((api, new)) = node.zip(parsed) else {
            if let Some(old) = self.nodes.remove(name) {
                self.decider.remove_node(name);
                let old = Some(old);
                self.wake(now, Happened::Node { old, new: None });
            }
            return;
        };
        self.decider.set_node(api, new.clone());
        let new = Arc::new(new);
        let old = self.nodes.insert(name.to_owned(), Arc::clone(&new));
        let new = Some(new);
        self.wake(now, Happened::Node { old, new });
    }
}

//! Changes of nodes.

use std::sync::Arc;

use dormouse_scheduler_decide::Node;
use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::jiff::Timestamp;

use super::State;
use crate::queue::Happened;

impl State {
    /// Keeps the object of a node for extenders that are sent objects.
    fn keep_object(&mut self, name: &str, node: Option<&Arc<ApiNode>>) {
        if self.extenders.iter().all(|one| one.node_cache_capable) {
            return;
        }
        match node {
            Some(node) => drop(self.objects.insert(name.to_owned(), Arc::clone(node))),
            None => drop(self.objects.remove(name)),
        }
    }

    /// A node that cannot be read takes no pods.
    pub(super) fn apply_node(&mut self, now: Timestamp, name: &str, node: Option<&Arc<ApiNode>>) {
        self.keep_object(name, node);
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

//! The nodes, and the pods in the store: where pods run, and which nodes are lost. Pure: what happened in, actions and
//! changes for the pods' apps out.
//!
//! It is one part for all shards, and its changes reach them in order. So a pod is either among the lost ones of its node, or
//! its change is marked: its node was lost before.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use dormouse_cluster::Key;
use dormouse_cluster::pod::node_of;
use dormouse_fleet::proto::{NodeStatus, PodSpec, PodStatus};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::action::Action;
use crate::event::{Event, PodChange};
use crate::{nodes, pod};

/// The nodes and pods.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pods: HashMap<Key, Arc<Pod>>,
    on_node: BTreeMap<String, BTreeSet<Key>>,
    /// Nodes in the store, and whether they are ready there.
    nodes: BTreeMap<String, bool>,
    /// Nodes with an open stream.
    up: BTreeSet<String>,
    /// Nodes in the store that were lost and have not reconnected.
    lost: BTreeSet<String>,
    /// Writes of pods' statuses, each with the node that reported it.
    writes: Writes<Key, (String, PodStatus)>,
    /// Writes of nodes: the loss of a node must not be written after its return.
    node_writes: Writes<String, Action>,
}

/// Writes of one kind, one per object at a time; of those that wait, only the newest is kept.
#[derive(Debug)]
struct Writes<K, W>(HashMap<K, Option<W>>);

impl<K, W> Default for Writes<K, W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq, W> Writes<K, W> {
    /// Returns the write if it may begin now; else it waits for the one in progress.
    fn begin(&mut self, object: K, write: W) -> Option<W> {
        if let Some(waiting) = self.0.get_mut(&object) {
            *waiting = Some(write);
            return None;
        }
        self.0.insert(object, None);
        Some(write)
    }

    /// The write of an object has ended; returns the one that has waited for it.
    fn ended<Q: Hash + Eq + ?Sized>(&mut self, object: &Q) -> Option<W>
    where
        K: Borrow<Q>,
    {
        self.0.remove(object).flatten()
    }
}

impl Inventory {
    /// A pod changed: the change is sent to its node; returns it for its app.
    pub(crate) fn pod(
        &mut self,
        key: Key,
        pod: Option<Arc<Pod>>,
        actions: &mut Vec<Action>,
    ) -> Option<PodChange> {
        let before = match &pod {
            Some(pod) => self.pods.insert(key.clone(), Arc::clone(pod)),
            None => self.pods.remove(&key),
        };
        self.send_pod_changes(&key, before.as_deref(), pod.as_deref(), actions);
        let (owner, vip) = pod::owner_of(pod.as_deref().or(before.as_deref())?)?;
        let node = pod.as_deref().and_then(node_of);
        Some(PodChange {
            vip,
            owner,
            key,
            on_lost_node: node.is_some_and(|node| self.lost.contains(node)),
            pod,
        })
    }

    /// A node's object changed; none: it was deleted.
    pub(crate) fn node(&mut self, name: String, node: Option<&Node>) {
        if let Some(node) = node {
            self.nodes.insert(name, nodes::is_ready(node));
        } else {
            self.nodes.remove(&name);
            self.lost.remove(&name);
        }
    }

    /// A node has opened its stream: it gets the complete list of its pods.
    pub(crate) fn node_up(
        &mut self,
        node: String,
        status: NodeStatus,
        boot_id: String,
        actions: &mut Vec<Action>,
    ) {
        self.up.insert(node.clone());
        self.lost.remove(&node);
        let specs = self.specs_on(&node);
        let up = Action::NodeUp {
            node: node.clone(),
            status: Box::new(status),
            boot_id,
        };
        actions.extend(self.node_writes.begin(node.clone(), up));
        actions.push(Action::SyncPods { node, specs });
    }

    /// A node is lost; returns its pods, each with the VIP of its app: they are replaced and removed from the entries.
    pub(crate) fn node_down(&mut self, node: String, actions: &mut Vec<Action>) -> Vec<(u32, Key)> {
        self.up.remove(&node);
        if self.nodes.contains_key(&node) {
            self.lost.insert(node.clone());
        }
        let keys = self.on_node.get(&node).into_iter().flatten();
        let pods = keys.filter_map(|key| Some((self.vip_of(key)?, key.clone())));
        let pods = pods.collect();
        tracing::warn!(node, "node lost");
        let down = Action::NodeDown { node: node.clone() };
        actions.extend(self.node_writes.begin(node, down));
        pods
    }

    /// The nodes that are ready in the store or have pods, and have not connected.
    pub(crate) fn overdue(&self) -> BTreeSet<String> {
        let ready = self.nodes.iter().filter(|(_, ready)| **ready);
        let ready = ready.map(|(node, _)| node);
        ready
            .chain(self.on_node.keys())
            .filter(|node| !self.up.contains(*node))
            .cloned()
            .collect()
    }

    /// A node reports a pod's status: it is written; returns the stages of the pod's start for its app. A report about another node's pod is
    /// ignored: with its address, a node would get that pod's traffic.
    pub(crate) fn reported(
        &mut self,
        node: String,
        status: PodStatus,
        actions: &mut Vec<Action>,
    ) -> Option<Event> {
        let key = Key::new(status.namespace.clone(), status.name.clone());
        self.pod_of(&key, &node)?;
        let staged = self.vip_of(&key).zip(status.stages);
        let staged = staged.map(|(vip, stages)| Event::Staged {
            vip,
            pod: key.name.clone(),
            node: node.clone(),
            stages,
        });
        self.write(key, node, status, actions);
        staged
    }

    /// The write of a pod's status has ended.
    pub(crate) fn status_written(&mut self, pod: &Key, actions: &mut Vec<Action>) {
        if let Some((node, status)) = self.writes.ended(pod) {
            self.write(pod.clone(), node, status, actions);
        }
    }

    /// Writes a pod's status, unless the pod is gone, or another one with its name is on another node.
    fn write(&mut self, pod: Key, node: String, status: PodStatus, actions: &mut Vec<Action>) {
        let Some(known) = self.pod_of(&pod, &node).cloned() else {
            return;
        };
        let write = self.writes.begin(pod, (node, status));
        actions.extend(write.map(|(node, status)| Action::PodStatus {
            pod: known,
            node,
            status: Box::new(status),
        }));
    }

    /// The write of a node has ended.
    pub(crate) fn node_written(&mut self, node: &str, actions: &mut Vec<Action>) {
        if let Some(write) = self.node_writes.ended(node) {
            actions.extend(self.node_writes.begin(node.to_owned(), write));
        }
    }

    /// Sends a changed pod to its node, to run it or to stop it.
    fn send_pod_changes(
        &mut self,
        key: &Key,
        before: Option<&Pod>,
        after: Option<&Pod>,
        actions: &mut Vec<Action>,
    ) {
        if before
            .zip(after)
            .is_some_and(|(before, after)| runs_the_same(before, after))
        {
            return;
        }
        if let Some((node, pod)) = before.and_then(|pod| Some((node_of(pod)?, pod))) {
            let same = after.is_some_and(|after| {
                after.metadata.uid == pod.metadata.uid && node_of(after) == Some(node)
            });
            if !same {
                if let Some(pods) = self.on_node.get_mut(node) {
                    pods.remove(key);
                    if pods.is_empty() {
                        self.on_node.remove(node);
                    }
                }
                actions.push(Action::Run {
                    node: node.to_owned(),
                    spec: pod::spec(pod, true),
                });
            }
        }
        if let Some((node, pod)) = after.and_then(|pod| Some((node_of(pod)?, pod))) {
            let pods = self.on_node.entry(node.to_owned()).or_default();
            pods.insert(key.clone());
            actions.push(Action::Run {
                node: node.to_owned(),
                spec: pod::spec(pod, false),
            });
        }
    }

    fn specs_on(&self, node: &str) -> Vec<PodSpec> {
        let keys = self.on_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
            .map(|pod| pod::spec(pod, false))
            .collect()
    }

    /// A pod, if it is on this node.
    fn pod_of(&self, pod: &Key, node: &str) -> Option<&Arc<Pod>> {
        let known = self.pods.get(pod)?;
        (node_of(known) == Some(node)).then_some(known)
    }

    /// The VIP of a pod's app.
    fn vip_of(&self, pod: &Key) -> Option<u32> {
        let (_, vip) = pod::owner_of(self.pods.get(pod)?)?;
        Some(vip)
    }
}

/// Whether two states of a pod differ only in what its node reports.
fn runs_the_same(before: &Pod, after: &Pod) -> bool {
    let deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    before.metadata.uid == after.metadata.uid
        && deleted(before) == deleted(after)
        && before.spec == after.spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_a_node_are_in_order_and_only_the_newest_waits() {
        let mut inventory = Inventory::default();
        let mut actions = Vec::new();
        let up = |inventory: &mut Inventory, boot_id: &str, actions: &mut Vec<Action>| {
            let status = NodeStatus::default();
            inventory.node_up("n1".into(), status, boot_id.into(), actions);
            actions.retain(|action| !matches!(action, Action::SyncPods { .. }));
        };
        up(&mut inventory, "first", &mut actions);
        assert_eq!(actions.len(), 1);
        inventory.node_down("n1".into(), &mut actions);
        up(&mut inventory, "second", &mut actions);
        assert_eq!(actions.len(), 1, "the first write has not ended");
        actions.clear();
        inventory.node_written("n1", &mut actions);
        assert!(matches!(&actions[..], [Action::NodeUp { boot_id, .. }] if boot_id == "second"));
        actions.clear();
        inventory.node_written("n1", &mut actions);
        assert_eq!(actions, []);
    }
}

//! The pods that nodes run, and lost nodes.

use std::collections::BTreeSet;

use dormouse_cluster::Key;
use dormouse_fleet::proto::PodSpec;
use k8s_openapi::api::core::v1::Pod;

use super::Apps;
use super::turn::Turn;
use crate::action::Action;
use crate::pod;

impl Apps {
    /// A lost node's pods are failed: they are replaced and removed from the entries.
    pub(super) fn node_down(&mut self, node: String, turn: &mut Turn) {
        self.up.remove(&node);
        if self.nodes.contains_key(&node) {
            self.lost.insert(node.clone());
        }
        let lost = self.on_node.get(&node).cloned().unwrap_or_default();
        let mut touched = BTreeSet::new();
        for key in lost {
            let owner = self.pods.get(&key).and_then(|pod| pod::owner_of(pod));
            let record = owner.and_then(|(_, vip)| self.records.get_mut(&vip));
            if let Some(record) = record {
                if let Some(member) = record.members.get_mut(&key) {
                    member.failed = true;
                }
                touched.insert(record.vip);
            }
        }
        tracing::warn!(node, "node lost");
        turn.actions.push(Action::NodeDown { node });
        for vip in touched {
            self.plan(vip, turn);
        }
    }

    pub(super) fn nodes_overdue(&mut self, turn: &mut Turn) {
        let ready = self
            .nodes
            .iter()
            .filter(|(_, ready)| **ready)
            .map(|(node, _)| node);
        let bound = self.on_node.keys();
        let overdue: BTreeSet<String> = ready
            .chain(bound)
            .filter(|node| !self.up.contains(*node))
            .cloned()
            .collect();
        for node in overdue {
            self.node_down(node, turn);
        }
    }

    /// Sends a changed pod to its node, to run it or to stop it.
    pub(super) fn send_pod_changes(
        &mut self,
        key: &Key,
        before: Option<&Pod>,
        after: Option<&Pod>,
        turn: &mut Turn,
    ) {
        let node_of = |pod: &Pod| {
            pod.spec
                .as_ref()
                .and_then(|spec| spec.node_name.clone())
                .filter(|node| !node.is_empty())
        };
        let identity = |pod: &Pod| {
            (
                pod.metadata.uid.clone(),
                pod.spec.clone(),
                pod.metadata.deletion_timestamp.is_some(),
            )
        };
        if before.map(identity) == after.map(identity) {
            return;
        }
        if let Some((node, pod)) = before.and_then(|pod| Some((node_of(pod)?, pod))) {
            let same = after.is_some_and(|after| {
                after.metadata.uid == pod.metadata.uid && node_of(after).as_ref() == Some(&node)
            });
            if !same {
                if let Some(pods) = self.on_node.get_mut(&node) {
                    pods.remove(key);
                    if pods.is_empty() {
                        self.on_node.remove(&node);
                    }
                }
                turn.actions.push(Action::Run {
                    node,
                    spec: pod::spec(pod, true),
                });
            }
        }
        if let Some((node, pod)) = after.and_then(|pod| Some((node_of(pod)?, pod))) {
            self.on_node
                .entry(node.clone())
                .or_default()
                .insert(key.clone());
            turn.actions.push(Action::Run {
                node,
                spec: pod::spec(pod, false),
            });
        }
    }

    pub(super) fn specs_on(&self, node: &str) -> Vec<PodSpec> {
        let keys = self.on_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
            .map(|pod| pod::spec(pod, false))
            .collect()
    }
}

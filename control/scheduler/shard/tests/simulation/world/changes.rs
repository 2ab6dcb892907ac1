//! Changes of the cluster, and faults.

use std::time::Duration;

use dormouse_scheduler_decide::PodKey;
use dormouse_scheduler_shard::{Leader, Object};
use k8s_openapi::api::core::v1::Pod;

use super::{NODES, PODS, World};
use crate::api::{Stored, key};
use crate::objects;
use crate::shadow::Change;

impl World {
    pub(super) fn add_node(&mut self, name: &str) {
        let node = objects::node(name, &mut self.random);
        self.api.nodes.insert(name.to_owned(), node.clone());
        self.shadow_change(Change::Node(node.clone()));
        if let Some(leader) = &mut self.leader {
            leader.set_node(node).unwrap();
        }
        self.wake();
    }

    fn remove_node(&mut self, name: &str) {
        let pods = self.api.pods.iter();
        let pods = pods.filter(|(_, pod)| pod.node.as_deref() == Some(name));
        let keys: Vec<PodKey> = pods.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.remove_pod(key);
        }
        self.api.nodes.remove(name);
        self.shadow_change(Change::NodeGone(name.to_owned()));
        if let Some(leader) = &mut self.leader {
            leader.remove_node(name);
        }
    }

    pub(super) fn remove_pod(&mut self, key: &PodKey) {
        self.api.pods.remove(key);
        self.parked.remove(key);
        self.shadow_change(Change::PodGone(key.clone()));
        if let Some(leader) = &mut self.leader {
            leader.remove_pod(key);
        }
        self.wake();
    }

    fn shadow_change(&mut self, change: Change) {
        let in_flight = self.leader.as_ref().map_or(0, Leader::in_flight_len);
        if let Some(shadow) = &mut self.shadow {
            shadow.change(change, in_flight > 0);
        }
    }

    /// Pods that no node could have are tried again.
    pub(super) fn wake(&mut self) {
        let parked = std::mem::take(&mut self.parked);
        for key in parked {
            if let Some(pod) = self.api.pods.get(&key) {
                let pod = pod.object.clone();
                self.submit(pod);
            }
        }
    }

    /// Without a leader the pod is in the API alone, where the next one finds it.
    pub(super) fn submit(&mut self, pod: Object<Pod>) {
        if let Some(leader) = &mut self.leader {
            leader.submit(pod).unwrap();
        }
    }

    pub(super) fn change(&mut self) {
        if self.pods_made < PODS && self.random.u8(0..20) == 0 {
            self.pods_made += 1;
            let pod = objects::pod(&format!("p{}", self.pods_made), &mut self.random);
            let stored = Stored {
                object: pod.clone(),
                node: None,
            };
            self.api.pods.insert(key(&pod), stored);
            self.submit(pod);
        }
        if self.random.u8(0..100) == 0 {
            let name = format!("n{}", self.random.usize(0..NODES));
            if self.random.u8(0..3) == 0 && self.api.nodes.contains_key(&name) {
                if !self.would_void(None) {
                    self.remove_node(&name);
                }
            } else if !self.api.nodes.contains_key(&name) {
                self.add_node(&name);
            }
        }
        if self.random.u8(0..150) == 0 && !self.api.pods.is_empty() {
            let at = self.random.usize(0..self.api.pods.len());
            let key = self.api.pods.keys().nth(at).cloned().unwrap();
            if !self.would_void(Some(&key)) {
                self.remove_pod(&key);
            }
        }
    }

    /// Whether the removal of a pod, or of a node, could void a claim. The shadow knows of no claims, which change what their
    /// nodes know of images: where it compares, none is void.
    fn would_void(&self, pod: Option<&PodKey>) -> bool {
        let in_flight = self.leader.as_ref().map_or(0, Leader::in_flight_len);
        let pod = pod.and_then(|key| self.api.pods.get(key));
        let is_bound = pod.is_some_and(|pod| pod.node.is_some());
        self.shadow.is_some() && in_flight > 0 && !is_bound
    }

    pub(super) fn disturb(&mut self) {
        if !self.faults.crashes {
            return;
        }
        if self.random.u8(0..100) == 0 {
            self.network.cut(&mut self.random);
        }
        if self.random.u16(0..120) == 0 {
            let at = self.random.usize(0..self.machines.len());
            let starts_at = self.now + Duration::from_millis(self.random.u64(1..1_500));
            if let Some(machine) = self.machines.values_mut().nth(at)
                && machine.process.take().is_some()
            {
                machine.starts_at = starts_at;
                self.crashes += 1;
            }
        }
        if self.random.u16(0..400) == 0 && self.leader.is_some() {
            self.seen_before = self.seen();
            self.leader = None;
            self.leader_starts_at = self.now + Duration::from_millis(self.random.u64(1..1_500));
            self.crashes += 1;
        }
    }
}

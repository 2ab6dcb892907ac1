//! The API: what is bound is bound, and the bindings of an earlier leader are refused.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::PodKey;
use dormouse_scheduler_shard::Object;
use k8s_openapi::api::core::v1::{Node, Pod};

/// A pod.
pub(super) struct Stored {
    pub(super) object: Object<Pod>,
    pub(super) node: Option<String>,
}

/// The objects.
#[derive(Default)]
pub(super) struct Api {
    pub(super) nodes: BTreeMap<String, Object<Node>>,
    pub(super) pods: BTreeMap<PodKey, Stored>,
    /// The term of the last leader.
    pub(super) term: u64,
    pub(super) bound: usize,
    /// Bindings of an earlier leader.
    pub(super) refused: usize,
    pub(super) evicted: usize,
}

pub(super) fn key(pod: &Pod) -> PodKey {
    PodKey {
        namespace: pod.metadata.namespace.clone().unwrap(),
        name: pod.metadata.name.clone().unwrap(),
    }
}

fn cpu_milli(pod: &Pod) -> u32 {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let requests = container.resources.as_ref().unwrap().requests.as_ref();
    let cpu = &requests.unwrap()["cpu"].0;
    cpu.trim_end_matches('m').parse().unwrap()
}

impl Api {
    /// Binds a pod. `None` if the leader is not the last one; an error if a rule is broken.
    pub(super) fn bind(
        &mut self,
        term: u64,
        key: &PodKey,
        node: &str,
    ) -> Result<Option<bool>, String> {
        if term < self.term {
            self.refused += 1;
            return Ok(None);
        }
        let Some(pod) = self.pods.get_mut(key) else {
            return Ok(Some(false));
        };
        if let Some(before) = &pod.node {
            if before == node {
                return Ok(Some(true));
            }
            return Err(format!("{key} on {before} is bound to {node} too"));
        }
        pod.node = Some(node.to_owned());
        self.bound += 1;
        // What requests nothing also fits on a node that has become smaller.
        if cpu_milli(&pod.object) > 0 {
            self.check(node)?;
        }
        Ok(Some(true))
    }

    /// No node has more than it can have.
    fn check(&self, name: &str) -> Result<(), String> {
        let Some(node) = self.nodes.get(name) else {
            return Ok(());
        };
        let allocatable = node.status.as_ref().unwrap().allocatable.as_ref().unwrap();
        let cpus: u32 = allocatable["cpu"].0.parse().unwrap();
        let pods = self.pods.values();
        let pods = pods.filter(|pod| pod.node.as_deref() == Some(name));
        let pods: Vec<_> = pods.collect();
        let used: u32 = pods.iter().map(|pod| cpu_milli(&pod.object)).sum();
        if used > cpus * 1_000 || pods.len() > 4 {
            return Err(format!(
                "{name} has {} pods that request {used}m of {cpus}",
                pods.len()
            ));
        }
        Ok(())
    }
}

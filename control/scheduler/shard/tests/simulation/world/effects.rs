//! Effects of decisions, and the state in which everything must end.

use std::time::Duration;

use dormouse_scheduler_decide::PodKey;
use dormouse_scheduler_shard::{Effect, Leader, Object, Rejection};
use k8s_openapi::api::core::v1::Pod;

use super::World;
use crate::shadow::{is_unschedulable, pod_of};

impl World {
    pub(super) fn apply(&mut self, effect: Effect) -> Result<(), String> {
        let key = pod_of(&effect).clone();
        if let (Some(shadow), Some(pod)) = (&mut self.shadow, self.api.pods.get(&key)) {
            shadow.decided(&pod.object, &effect)?;
        }
        match effect {
            Effect::Bind { .. } => {
                let is_late = self.faults.crashes && self.random.u8(0..4) == 0;
                let delay_ms_max = if is_late { 3_000 } else { 400 };
                let delay = Duration::from_millis(self.random.u64(1..delay_ms_max));
                let arrives_at = self.now + delay;
                self.bindings.push((arrives_at, effect));
                self.wake();
            }
            Effect::Reject {
                rejection, cleared, ..
            } => self.reject(key, &rejection, &cleared),
            Effect::Fail(_, error) => return Err(format!("{key}: {error}")),
            Effect::Inexact(_, missing) => self.missing += missing,
        }
        Ok(())
    }

    fn reject(&mut self, key: PodKey, rejection: &Rejection, cleared: &[PodKey]) {
        let node = rejection.victims.as_ref();
        let node = node.map_or(String::new(), |victims| victims.node.clone());
        let mut is_changed = cleared.iter().any(|key| self.nominate(key, ""));
        if rejection.victims.is_some() || rejection.is_cleared {
            is_changed |= self.nominate(&key, &node);
        }
        if is_changed {
            self.wake();
        }
        if self.api.pods.contains_key(&key) {
            self.parked.insert(key);
        }
        for victim in rejection.victims.iter().flat_map(|victims| &victims.pods) {
            self.api.evicted += 1;
            self.remove_pod(victim);
        }
    }

    /// Whether that is new.
    fn nominate(&mut self, key: &PodKey, node: &str) -> bool {
        let Some(pod) = self.api.pods.get_mut(key) else {
            return false;
        };
        let mut object = Pod::clone(&pod.object);
        let nominated = &mut object.status.get_or_insert_default().nominated_node_name;
        let before = nominated.replace(node.to_owned()).unwrap_or_default();
        pod.object = Object::new(object);
        before != node
    }

    /// Bindings arrive at the API; its answers do not arrive if the leader has died.
    pub(super) fn bind(&mut self) -> Result<(), String> {
        let now = self.now;
        let (arrived, rest) = self.bindings.drain(..).partition(|(at, _)| *at <= now);
        self.bindings = rest;
        let arrived: Vec<(Duration, Effect)> = arrived;
        for (_, effect) in arrived {
            let Effect::Bind {
                term, key, node, ..
            } = effect
            else {
                continue;
            };
            let answer = self.api.bind(term, &key, &node)?;
            if let (Some(is_bound), Some(leader)) = (answer, &mut self.leader) {
                leader.bound(&key, is_bound);
            }
        }
        Ok(())
    }

    pub(super) fn is_quiet(&self) -> bool {
        let pending = self.leader.as_ref().map(Leader::pending_len);
        pending == Some(0) && self.bindings.is_empty()
    }

    /// Each pod is bound, or no node can have it.
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, pod) in self.api.pods.iter().filter(|(_, pod)| pod.node.is_none()) {
            if !self.parked.contains(key) {
                return Err(format!("{key} is lost"));
            }
            if self.faults.straggler.is_none() && !is_unschedulable(&self.api, &pod.object) {
                return Err(format!("{key} could be bound"));
            }
        }
        Ok(())
    }
}

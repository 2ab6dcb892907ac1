//! Attempts: their order, their ends, and the one binding of each pod.

use std::time::Duration;

use dormouse_scheduler_decide::{Malformed, Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as ApiPod;

use super::{Binding, Effect, Flight, Leader, Output, Stream};
use crate::change::Change;
use crate::message::{AttemptId, Decision, Message, Rejection, Task};
use crate::object::Object;

impl Leader {
    /// A pod that is to be scheduled, after those that wait already. One that is waiting, in flight or bound stays what it is.
    pub fn submit(&mut self, pod: Object<ApiPod>) -> Result<(), Malformed> {
        let parsed = Pod::parse(&pod)?;
        let key = parsed.key().clone();
        let is_known = self.bindings.contains_key(&key)
            || self.waiting.iter().any(|(waiting, _)| *waiting == key)
            || self.flights.values().any(|flight| flight.key == key);
        if !is_known && parsed.node_name().is_empty() {
            self.waiting.push_back((key, pod));
        }
        Ok(())
    }

    /// The pods that have no end yet: waiting, in flight, or with a binding to be confirmed.
    pub fn pending_len(&self) -> usize {
        self.waiting.len() + self.flights.len() + self.bindings.len()
    }

    /// The attempts in flight.
    pub fn in_flight_len(&self) -> usize {
        self.flights.len()
    }

    /// The API has bound the pod, or has refused to: then it is not on the node.
    pub fn bound(&mut self, key: &PodKey, is_bound: bool) {
        if self.bindings.remove(key).is_some() && !is_bound {
            self.displace(key);
        }
    }

    /// Begins attempts, once all members have the view, and in the window of one all changes too.
    pub(super) fn begin_attempts(&mut self, now: Duration) {
        while self.may_begin() {
            let Some((key, pod)) = self.waiting.pop_front() else {
                return;
            };
            self.begin(key, pod, now);
            // An attempt may end at once, with changes.
            self.flush_streams(now);
        }
    }

    fn may_begin(&self) -> bool {
        let has_view = self
            .view
            .members()
            .all(|member| self.adopted.contains(member));
        let has_shards = !self.view.shards.is_empty();
        let has_room = self.flights.len() < self.limits.window.max(1);
        let has_changes = self.streams.values().all(Stream::is_applied);
        let waits = !has_changes && (self.is_serial() || self.flights.is_empty());
        has_view && has_shards && has_room && !waits
    }

    fn begin(&mut self, key: PodKey, pod: Object<ApiPod>, now: Duration) {
        self.serial += 1;
        let id = AttemptId {
            epoch: self.view.epoch,
            serial: self.serial,
        };
        let flight = Flight {
            key,
            pod: pod.clone(),
            began: now,
        };
        self.flights.insert(self.serial, flight);
        let oldest = self.flights.keys().next().copied();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let gatherer = self.view.gatherer_of(uid).clone();
        let task = Task {
            id,
            pod,
            oldest: oldest.unwrap_or(self.serial),
        };
        self.send(vec![(gatherer, Message::Attempt(task))], now);
    }

    /// Ends an attempt without a decision; its claim, if there is one or one comes late, has no effect.
    pub(super) fn drop_flight(&mut self, serial: u64) -> Option<Flight> {
        let flight = self.flights.remove(&serial)?;
        self.push_to_all(&Change::Release(serial));
        // Where the claim was, the nomination is gone too.
        if let Some((node, pod)) = self.cluster.pod(&flight.key).cloned() {
            self.push(&node, Change::Pod(pod));
        }
        Some(flight)
    }

    /// Begins an attempt again, before all others.
    pub(super) fn repeat(&mut self, serial: u64) {
        if let Some(flight) = self.drop_flight(serial) {
            self.seen.repeated += 1;
            self.waiting.push_front((flight.key, flight.pod));
        }
    }

    pub(super) fn repeat_attempts(&mut self, now: Duration) {
        let limit = self.limits.attempt;
        let old = self
            .flights
            .iter()
            .filter(|(_, flight)| now >= flight.began + limit);
        let old: Vec<u64> = old.map(|(serial, _)| *serial).collect();
        for serial in old.into_iter().rev() {
            self.repeat(serial);
        }
    }

    pub(super) fn repeat_bindings(&mut self, now: Duration) {
        let resend = self.limits.resend;
        for (key, binding) in &mut self.bindings {
            if now >= binding.sent_at + resend {
                binding.sent_at = now;
                let effect = bind(self.view.epoch.term, key, binding);
                self.outputs.push(Output::Effect(effect));
            }
        }
    }

    /// The end of an attempt, unless it was given up: then another one decides.
    pub(super) fn decided(
        &mut self,
        id: AttemptId,
        decision: Decision,
        missing: usize,
        now: Duration,
    ) {
        if id.epoch != self.view.epoch {
            return;
        }
        let Some(flight) = self.flights.get(&id.serial) else {
            return;
        };
        let has_node = |node: &String| self.cluster.has_node(node);
        match decision {
            Decision::Retry => self.repeat(id.serial),
            Decision::Place(node) if !has_node(&node) => self.repeat(id.serial),
            decision => {
                let (key, pod) = (flight.key.clone(), flight.pod.clone());
                self.flights.remove(&id.serial);
                self.seen.decided += 1;
                if missing > 0 {
                    self.seen.inexact += 1;
                    let inexact = Effect::Inexact(key.clone(), missing);
                    self.outputs.push(Output::Effect(inexact));
                }
                self.conclude(key, &pod, decision, now);
            }
        }
    }

    fn conclude(&mut self, key: PodKey, pod: &Object<ApiPod>, decision: Decision, now: Duration) {
        let effect = match decision {
            Decision::Place(node) => self.permit(&key, pod, node, now),
            Decision::Reject(rejection) => self.reject(key, pod, rejection),
            Decision::Fail(error) => Effect::Fail(key, error),
            Decision::Retry => return,
        };
        self.outputs.push(Output::Effect(effect));
    }

    /// The one binding of a pod. The change that puts it on the node confirms the claim of the shard.
    fn permit(
        &mut self,
        key: &PodKey,
        pod: &Object<ApiPod>,
        node: String,
        now: Duration,
    ) -> Effect {
        let mut bound = ApiPod::clone(pod);
        bound.spec.get_or_insert_default().node_name = Some(node.clone());
        self.place(key, Object::new(bound));
        let binding = Binding {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node,
            sent_at: now,
        };
        let effect = bind(self.view.epoch.term, key, &binding);
        self.bindings.insert(key.clone(), binding);
        effect
    }

    fn reject(&mut self, key: PodKey, pod: &Object<ApiPod>, rejection: Rejection) -> Effect {
        let mut cleared = Vec::new();
        if let Some(victims) = &rejection.victims {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
            let below = self
                .cluster
                .nominated_below(&victims.node, priority.unwrap_or(0));
            for other in below.into_iter().filter(|other| *other != key) {
                self.displace(&other);
                cleared.push(other);
            }
            let mut nominated = ApiPod::clone(pod);
            let status = nominated.status.get_or_insert_default();
            status.nominated_node_name = Some(victims.node.clone());
            self.place(&key, Object::new(nominated));
        } else if rejection.is_cleared {
            self.displace(&key);
        }
        Effect::Reject {
            key,
            rejection,
            cleared,
        }
    }

    /// Puts a pod on the node that it is bound or nominated to.
    pub(super) fn place(&mut self, key: &PodKey, pod: Object<ApiPod>) {
        let spec = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let status = pod.status.as_ref();
        let nominated = status.and_then(|status| status.nominated_node_name.clone());
        let is_name = |name: &String| !name.is_empty();
        let Some(node) = spec.filter(is_name).or(nominated.filter(is_name)) else {
            self.displace(key);
            return;
        };
        let before = self.cluster.displace(key);
        if let Some(before) = before.filter(|before| *before != node) {
            self.push(&before, Change::PodGone(key.clone()));
        }
        self.cluster.place(key.clone(), &node, pod.clone());
        self.push(&node, Change::Pod(pod));
    }

    pub(super) fn displace(&mut self, key: &PodKey) {
        if let Some(node) = self.cluster.displace(key) {
            self.push(&node, Change::PodGone(key.clone()));
        }
    }
}

fn bind(term: u64, key: &PodKey, binding: &Binding) -> Effect {
    Effect::Bind {
        term,
        key: key.clone(),
        uid: binding.uid.clone(),
        node: binding.node.clone(),
    }
}

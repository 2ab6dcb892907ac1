//! Direct placements: a node for a pod that is about to be created.

use std::sync::Arc;

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::Timestamp;

use super::pods::scheduler_of;
use super::{ASSUMED_TTL, Assumed, State};
use crate::queue::Happened;

impl State {
    /// Decides for a pod, and lets it count on its node; `None` if the decision comes later ([`State::take_placed`]). A repeated
    /// call for a pod returns the same node. The error is the reason for which no node can have the pod.
    pub fn place(&mut self, now: Timestamp, api: &Arc<ApiPod>) -> Option<Result<String, String>> {
        self.expire_assumed(now);
        if self.is_extended(api) {
            let refused = "extenders are asked about pods that are stored";
            return Some(Err(refused.to_owned()));
        }
        let pod = match Pod::parse(api) {
            Ok(pod) => pod,
            Err(error) => return Some(Err(format!("the pod cannot be read: {error}"))),
        };
        if let Some(node) = self.node_of(pod.key()) {
            return Some(Ok(node.to_owned()));
        }
        let decision = self.decide_placing(now, scheduler_of(api), api, &pod)?;
        Some(self.conclude_placing(now, api, pod, decision))
    }

    /// What a decision makes of a pod that is placed directly.
    pub(super) fn conclude_placing(
        &mut self,
        now: Timestamp,
        api: &ApiPod,
        pod: Pod,
        decision: Decision,
    ) -> Result<String, String> {
        let node = match decision {
            Decision::Placed { node } => node,
            Decision::Gated(status) => return Err(status.message()),
            Decision::Unschedulable { message, .. } => return Err(message),
            Decision::Error(error) => return Err(error),
        };
        let key = pod.key().clone();
        let pod = pod.bound(node.clone(), None);
        self.decider.set_pod(api, pod.clone());
        let expires = now.checked_add(ASSUMED_TTL).unwrap_or(Timestamp::MAX);
        let assumed = Assumed {
            pod: Arc::new(pod),
            expires: Some(expires),
        };
        self.assumed.insert(key.clone(), assumed);
        self.expiring.push_back((expires, key));
        Ok(node.to_string())
    }

    /// The node on which a pod counts.
    fn node_of(&self, key: &PodKey) -> Option<&str> {
        let assumed = self.assumed.get(key).map(|assumed| &assumed.pod);
        let known = self.pods.get(key).map(|known| &known.pod);
        let node = assumed.or(known)?.node_name();
        (!node.is_empty()).then_some(node)
    }

    /// Lets the pods count no more that were placed directly and never seen.
    pub(super) fn expire_assumed(&mut self, now: Timestamp) {
        while let Some((expires, key)) = self.expiring.pop_front_if(|(at, _)| *at <= now) {
            let is_same = |assumed: &Assumed| assumed.expires == Some(expires);
            if !self.assumed.get(&key).is_some_and(is_same) {
                continue;
            }
            let Some(assumed) = self.assumed.remove(&key) else {
                continue;
            };
            self.decider.remove_pod(&key);
            // It waits in the store by now, with its nomination.
            if let Some(known) = self.pods.get(&key) {
                let known = Pod::clone(&known.pod);
                self.count(known);
            }
            let old = Some(assumed.pod);
            self.wake(now, Happened::Pod { old, new: None });
        }
    }
}

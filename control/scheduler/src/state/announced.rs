//! Pods that a webhook announced: they are decided on before the watch shows them, and bound only afterwards.

use std::sync::Arc;

use dormouse_cluster::pod::node_of;
use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::State;
use super::pods::{is_leaving, scheduler_of};
use crate::queue::{Popped, Waiting};

/// Time within which the watch is to show an announced pod. One that was refused after the webhook, or not stored, is
/// dropped then.
pub const ANNOUNCED_TTL: SignedDuration = SignedDuration::from_secs(10);
/// Announced pods that the watch has not shown; further ones come by the watch alone.
pub const ANNOUNCED_MAX: usize = 10_000;

/// An announced pod that the watch has not shown.
#[derive(Debug)]
pub(super) struct Announced {
    uid: String,
    expires: Timestamp,
}

impl State {
    /// Takes a pod into the queue that is about to be created. One without a uid could not be recognized in the watch.
    pub fn announce(&mut self, now: Timestamp, api: &Arc<ApiPod>) {
        self.expire_announced(now);
        let uid = api.metadata.uid.clone().filter(|uid| !uid.is_empty());
        let is_ours = self.profiles.has(scheduler_of(api)) && node_of(api).is_none();
        let (Some(uid), true, Ok(pod)) = (uid, is_ours && !is_leaving(api), Pod::parse(api)) else {
            return;
        };
        let key = pod.key().clone();
        let is_repeated = self.announced.get(&key).is_some_and(|one| one.uid == uid);
        if is_repeated || self.pods.contains_key(&key) {
            return;
        }
        if self.announced.contains_key(&key) {
            // The creation of the former one failed: it would have this name.
            self.forget(now, &key);
        }
        if self.assumed.contains_key(&key) || self.announced.len() >= ANNOUNCED_MAX {
            return;
        }
        let expires = now.checked_add(ANNOUNCED_TTL).unwrap_or(Timestamp::MAX);
        self.announced
            .insert(key.clone(), Announced { uid, expires });
        self.unseen.push_back((expires, key.clone()));
        self.pending.insert(key, Arc::clone(api));
        let waiting = Waiting {
            pod: Arc::new(pod),
            scheduler: scheduler_of(api).into(),
        };
        let judge = self.profiles.judge(self.decider.snapshot());
        self.queue.set(now, &judge, waiting, false);
    }

    /// The watch shows a pod: one of this name and another uid is not to come anymore.
    pub(super) fn confirm(&mut self, now: Timestamp, key: &PodKey, uid: &str) {
        if let Some(announced) = self.announced.remove(key)
            && announced.uid != uid
        {
            self.forget(now, key);
        }
    }

    /// Decides for an announced pod, which then leaves the queue. With a node it counts there until the watch shows it: then
    /// it is bound. Without one it is decided on again then; nothing is evicted for it before.
    pub(super) fn decide_early(&mut self, popped: &Popped) -> bool {
        let key = popped.waiting.pod.key();
        let Some(expires) = self.announced.get(key).map(|one| one.expires) else {
            return false;
        };
        let key = key.clone();
        // Extenders are asked about pods that exist.
        let is_extended = self
            .pending
            .get(&key)
            .is_some_and(|api| self.is_extended(api));
        let (scheduler, pod) = (&popped.waiting.scheduler, &popped.waiting.pod);
        let decision = (!is_extended).then(|| self.decider.decide_at_once(scheduler, pod));
        self.queue.placed(popped);
        if let Some(Some(Decision::Placed { node })) = decision {
            self.assume(pod, node, Some(expires));
        }
        self.pending.remove(&key);
        true
    }

    /// Drops the pods that the watch has not shown in time.
    pub(super) fn expire_announced(&mut self, now: Timestamp) {
        while let Some((expires, key)) = self.unseen.pop_front_if(|(at, _)| *at <= now) {
            let is_same = |announced: &Announced| announced.expires == expires;
            if self.announced.get(&key).is_some_and(is_same) {
                self.forget(now, &key);
            }
        }
    }
}

//! Attempts whose decision comes later: which pod of the queue, or which direct placement, waits for it.

use std::sync::Arc;

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::Timestamp;

use super::State;
use super::cycle::{Verdict, Work};
use crate::queue::Popped;

/// An attempt that has begun. A pod that is placed directly may come to the queue meanwhile.
#[derive(Debug)]
pub(super) struct Deciding {
    popped: Option<Popped>,
    placing: Option<Placing>,
    began: Timestamp,
}

/// A direct placement.
#[derive(Debug)]
struct Placing {
    api: Arc<ApiPod>,
    pod: Pod,
}

impl State {
    /// Decides for a pod of the queue; `None` if the decision comes later. A pod that was placed directly has its node already.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        api: &ApiPod,
        popped: &Popped,
    ) -> Option<Decision> {
        let pod = &popped.waiting.pod;
        if let Some(assumed) = self.assumed.get(pod.key()) {
            let node = assumed.pod.node_name().into();
            return Some(Decision::Placed { node });
        }
        let of = (&*popped.waiting.scheduler, api, &**pod);
        self.begin(now, of, |deciding| {
            deciding.popped = Some(popped.clone());
        })
    }

    /// Decides for a pod that is placed directly, likewise.
    pub(super) fn decide_placing(
        &mut self,
        now: Timestamp,
        scheduler: &str,
        api: &Arc<ApiPod>,
        pod: &Pod,
    ) -> Option<Decision> {
        self.begin(now, (scheduler, api, pod), |deciding| {
            let (api, pod) = (Arc::clone(api), pod.clone());
            deciding.placing = Some(Placing { api, pod });
        })
    }

    /// Decides for a pod, or joins its attempt that has begun; `None` if the decision comes later.
    fn begin(
        &mut self,
        now: Timestamp,
        (scheduler, api, pod): (&str, &ApiPod, &Pod),
        join: impl FnOnce(&mut Deciding),
    ) -> Option<Decision> {
        if let Some(deciding) = self.deciding.get_mut(pod.key()) {
            join(deciding);
            return None;
        }
        let decision = self.decider.decide(scheduler, api, pod);
        if decision.is_none() {
            let mut deciding = Deciding {
                popped: None,
                placing: None,
                began: now,
            };
            join(&mut deciding);
            self.deciding.insert(pod.key().clone(), deciding);
        }
        decision
    }

    /// The next work of a decision that came later.
    pub(super) fn next_ended(&mut self, now: Timestamp) -> Option<Work> {
        while let Some((key, ended)) = self.decider.take_ended() {
            let Some(deciding) = self.deciding.remove(&key) else {
                continue;
            };
            let mut decision = ended.decision;
            if let Some(Placing { api, pod }) = deciding.placing {
                let placed = self.conclude_placing(now, &api, pod, decision.clone());
                if let Ok(node) = &placed {
                    let node = node.as_str().into();
                    decision = Decision::Placed { node };
                } else if deciding.popped.is_none() {
                    self.deny(&key);
                }
                self.placed.push((key.clone(), placed));
            }
            let pod = self.pending.get(&key).cloned();
            if let Some((pod, popped)) = pod.zip(deciding.popped) {
                let begun = (deciding.began, ended.missing);
                return Some(self.conclude(pod, popped, decision, begun));
            }
        }
        None
    }

    /// A direct placement preempts no pods: it has no nomination, as shards believe.
    fn deny(&mut self, key: &PodKey) {
        self.decider.remove_pod(key);
        if let Some(known) = self.pods.get(key) {
            let known = Pod::clone(&known.pod);
            self.count(known);
        }
    }

    /// Notes that a decision was made without so many shards: another node may have been better, or feasible.
    pub(super) fn noted(
        &mut self,
        popped: &Popped,
        mut verdict: Verdict,
        missing: usize,
    ) -> Verdict {
        let key = popped.waiting.pod.key();
        if missing == 0 {
            self.inexact.remove(key);
            return verdict;
        }
        tracing::warn!(pod = %key, missing, "decided without the answers of all shards");
        self.inexact.insert(key.clone(), missing);
        if let Verdict::Rejected(rejection) = &mut verdict {
            rejection.message.push_str(&inexact(missing));
        }
        verdict
    }

    /// The direct placements that were decided on since the last call.
    pub fn take_placed(&mut self) -> Vec<(PodKey, Result<String, String>)> {
        std::mem::take(&mut self.placed)
    }

    /// Ends the attempt of a pod that was seen on a node, or to be gone.
    pub(super) fn settle(&mut self, key: &PodKey, placed: Result<&str, &str>) {
        let deciding = self.deciding.remove(key);
        if deciding.is_some_and(|deciding| deciding.placing.is_some()) {
            let placed = placed.map(str::to_owned).map_err(str::to_owned);
            self.placed.push((key.clone(), placed));
        }
    }
}

/// What messages add about a decision without so many shards; nothing if it has the answers of all.
pub(crate) fn inexact(missing: usize) -> String {
    match missing {
        0 => String::new(),
        shards => format!(" (inexact: {shards} shards had not answered in time)"),
    }
}

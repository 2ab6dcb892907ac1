//! Pods about which extenders are asked: the attempt yields its feasible nodes, and is made again with the replies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Attempt as Found, Outcome as End, Vetoes};
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use k8s_openapi::jiff::Timestamp;

use super::{State, Step};
use crate::queue::Popped;

/// Times that extenders are asked in one attempt: the nodes may change meanwhile.
const ROUNDS_MAX: u32 = 4;

/// A node about which extenders are asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// Its object, if an extender wants it.
    pub object: Option<Arc<ApiNode>>,
}

/// What extenders are asked, in an attempt that [`State::consulted`] goes on with.
#[derive(Debug)]
pub struct Consultation {
    /// The pod.
    pub pod: Arc<ApiPod>,
    /// The nodes that pass all filters.
    pub nodes: Vec<Asked>,
    pub(super) popped: Popped,
    replies: Replies,
    rounds: u32,
    began: Timestamp,
}

/// What extenders reply.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    /// The nodes that they rejected.
    pub vetoes: Vetoes,
    /// The sums of their weighted scores.
    pub scores: BTreeMap<String, i64>,
}

impl State {
    /// Whether an extender is asked about a pod.
    pub(super) fn is_extended(&self, pod: &ApiPod) -> bool {
        let mut all = self.extenders.iter();
        all.any(|extender| extender.is_interested(pod))
    }

    /// Begins an attempt for a pod about which extenders are asked.
    pub(super) fn consult(&mut self, popped: Popped, pod: Arc<ApiPod>, now: Timestamp) -> Step {
        let consultation = Consultation {
            pod,
            nodes: Vec::new(),
            popped,
            replies: Replies::default(),
            rounds: 0,
            began: now,
        };
        self.advance(consultation)
    }

    /// Goes on with the replies; an error ends the attempt. `None` for a pod that was removed meanwhile.
    pub fn consulted(
        &mut self,
        mut consultation: Consultation,
        replies: Result<Replies, String>,
    ) -> Option<Step> {
        if !self.queue.is_in_flight(&consultation.popped) {
            return None;
        }
        match replies {
            Ok(replies) => {
                let nodes = consultation.nodes.iter();
                let vetoes = &mut consultation.replies.vetoes;
                nodes.for_each(|node| drop(vetoes.remove(&node.name)));
                vetoes.extend(replies.vetoes);
                consultation.replies.scores = replies.scores;
                Some(self.advance(consultation))
            }
            Err(error) => Some(self.end(consultation, Decision::Error(error))),
        }
    }

    /// Decides if the extenders were asked about all nodes that may have the pod; else asks them.
    fn advance(&mut self, mut consultation: Consultation) -> Step {
        let popped = &consultation.popped;
        let vetoes = Arc::new(consultation.replies.vetoes.clone());
        let has_vetoes = !vetoes.is_empty();
        let scheduler = &popped.waiting.scheduler;
        let found = self
            .decider
            .attempt_with(scheduler, &popped.waiting.pod, vetoes);
        let decision = match found {
            None => Decision::Error(format!("no profile is named {scheduler:?}")),
            Some(found) if found.outcome != End::Placed => without_node(found, has_vetoes),
            Some(found) => {
                let asked = consultation.nodes.iter().map(|node| node.name.as_str());
                let asked: BTreeSet<_> = asked.collect();
                if found.feasible.iter().all(|name| asked.contains(&**name)) {
                    let node = self.choose(found, &consultation.replies.scores).into();
                    Decision::Placed { node }
                } else if consultation.rounds == ROUNDS_MAX {
                    Decision::Error("nodes change faster than extenders reply".to_owned())
                } else {
                    consultation.rounds += 1;
                    consultation.nodes = self.asked(found.feasible);
                    return Step::Ask(Box::new(consultation));
                }
            }
        };
        self.end(consultation, decision)
    }

    fn end(&mut self, consultation: Consultation, decision: Decision) -> Step {
        let Consultation {
            popped, pod, began, ..
        } = consultation;
        Step::Write(Box::new(self.conclude(pod, popped, decision, (began, 0))))
    }

    /// One of the nodes that are best with the scores of extenders.
    fn choose(&mut self, mut found: Found, scores: &BTreeMap<String, i64>) -> String {
        if let Some(own) = &mut found.scores {
            for (total, name) in own.total.iter_mut().zip(&found.feasible) {
                *total = total.saturating_add(scores.get(name).copied().unwrap_or(0));
            }
        }
        let node = found.draw(self.rng.u64(..));
        node.map(str::to_owned).unwrap_or_default()
    }

    fn asked(&self, names: Vec<String>) -> Vec<Asked> {
        let asked = names.into_iter().map(|name| Asked {
            object: self.objects.get(&name).cloned(),
            name,
        });
        asked.collect()
    }
}

/// Extenders do not say which change helps: a pod that they rejected is tried again after its backoff.
fn without_node(mut found: Found, has_vetoes: bool) -> Decision {
    if has_vetoes {
        found.unschedulable_plugins.clear();
    }
    Decision::of(found)
}

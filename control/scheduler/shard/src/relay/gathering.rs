//! An attempt at the member that gathers: question by question, then a claim at the shard that was drawn.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_scheduler_decide::{
    Answer, Conclusion, Counts, Gather, Nomination, Outcome, PartId, Pod, Profile, Question, Step,
};

use crate::message::{Claimed, Decision, Rejection, Task, Victims};
use crate::view::mixed;

/// Conflicts of claims after which the pod is left to another attempt.
const CONFLICTS_MAX: u32 = 8;

/// An attempt.
pub(super) struct Gathering {
    pub(super) task: Task,
    pub(super) round: u32,
    pod: Pod,
    gather: Gather,
    shards_len: usize,
    /// The shards that were left out, and the largest number of them.
    pub(super) excluded: BTreeSet<PartId>,
    pub(super) missing: usize,
    conflicts: u32,
}

/// A number that differs for each attempt and each of its rounds.
fn random(task: &Task, round: u32) -> u64 {
    let id = task.id;
    mixed(mixed(id.epoch.term) ^ mixed(id.serial) ^ u64::from(round))
}

/// The first node on which preemption is tried.
fn offset(task: &Task, round: u32) -> usize {
    usize::try_from(random(task, round) >> 32).unwrap_or(0)
}

/// What comes next.
pub(super) enum Next {
    Ask(Question),
    Claim(PartId, usize),
    Done(Decision),
}

impl Gathering {
    /// `None` for a pod that is malformed, which the leader has refused before.
    pub(super) fn new(task: Task, profile: &Arc<Profile>, shards_len: usize) -> Option<Self> {
        let pod = Pod::parse(&task.pod).ok()?;
        Some(Self {
            gather: Gather::new(Arc::clone(profile), &pod, offset(&task, 0)),
            task,
            round: 0,
            pod,
            shards_len,
            excluded: BTreeSet::new(),
            missing: 0,
            conflicts: 0,
        })
    }

    fn random(&self) -> u64 {
        random(&self.task, self.round)
    }

    /// The merged answer of all shards but those that are left out; `None` if there are no shards.
    pub(super) fn answered(
        &mut self,
        answer: Option<Box<Answer>>,
        excluded: BTreeSet<PartId>,
    ) -> Next {
        self.missing = self.missing.max(excluded.len());
        self.excluded = excluded;
        let answer = match answer {
            Some(answer) => *answer,
            None if self.shards_len == 0 => Answer::Counts(Counts::default()),
            // All shards are left out.
            None => return Next::Done(Decision::Retry),
        };
        match self.gather.next(answer) {
            Step::Ask(question) => Next::Ask(question),
            Step::Done(conclusion) => self.concluded(*conclusion),
        }
    }

    fn concluded(&self, conclusion: Conclusion) -> Next {
        Next::Done(match conclusion.outcome {
            Outcome::Placed => {
                let drawn = conclusion.top.draw(self.random());
                return match drawn {
                    Some((shard, nth)) => Next::Claim(shard, nth),
                    // All feasible nodes have gone while they were scored.
                    None => Next::Done(Decision::Retry),
                };
            }
            Outcome::Error(error) => Decision::Fail(error),
            Outcome::Gated(status) => Decision::Fail(status.message()),
            Outcome::Unschedulable(message) => {
                let (plugins, nomination) =
                    (conclusion.unschedulable_plugins, conclusion.nomination);
                let mut rejection = Rejection::new(message, plugins, nomination);
                let preemption = conclusion.preemption;
                let preemption = preemption.filter(|_| nomination == Nomination::ToVictims);
                rejection.victims = preemption.and_then(|found| {
                    let best = found.best();
                    let len = u128::try_from(best.len()).ok()?;
                    let at = (u128::from(self.random()) * len) >> 64;
                    let candidate = best.get(usize::try_from(at).ok()?)?;
                    Some(Victims {
                        node: candidate.node.clone(),
                        pods: candidate.victims.clone(),
                    })
                });
                Decision::Reject(rejection)
            }
        })
    }

    /// After a conflict the nodes are scored again, with what has changed.
    pub(super) fn claimed(&mut self, claimed: Claimed, profile: &Arc<Profile>) -> Next {
        match claimed {
            Claimed::Node(node) => Next::Done(Decision::Place(node)),
            Claimed::Conflict if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                self.excluded.clear();
                let offset = offset(&self.task, self.round);
                self.gather = Gather::new(Arc::clone(profile), &self.pod, offset);
                Next::Ask(Question::Count)
            }
            Claimed::Conflict => Next::Done(Decision::Retry),
        }
    }
}

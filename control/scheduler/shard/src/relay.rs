//! A relay: it passes questions on along the tree and merges the answers, and gathers those for pods that are its own. The
//! leader is the root of the tree, and has one too.

mod gathering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dormouse_scheduler_decide::{Answer, PartId, Profile, Question};

use crate::message::{AttemptId, Message, Sent, Task};
use crate::view::{Epoch, Member, View};
use gathering::{Gathering, Next};

/// A relay.
pub struct Relay {
    me: Member,
    profile: Arc<Profile>,
    /// The time after which shards that have not answered are left out, which makes decisions inexact.
    straggler_timeout: Option<Duration>,
    view: Option<View>,
    gatherings: BTreeMap<u64, Gathering>,
    merges: BTreeMap<u64, Merge>,
    oldest: u64,
}

/// A question that was passed on: the last one of an attempt.
struct Merge {
    id: AttemptId,
    round: u32,
    /// The member that asked; `None` for this one.
    origin: Option<Member>,
    waiting: BTreeSet<Member>,
    answer: Option<Box<Answer>>,
    excluded: BTreeSet<PartId>,
    began: Duration,
}

/// A question in its attempt.
struct Round {
    task: Task,
    number: u32,
    question: Question,
    excluded: BTreeSet<PartId>,
}

impl Relay {
    /// A relay without a view.
    pub fn new(me: Member, profile: Profile, straggler_timeout: Option<Duration>) -> Self {
        Self {
            me,
            profile: Arc::new(profile),
            straggler_timeout,
            view: None,
            gatherings: BTreeMap::new(),
            merges: BTreeMap::new(),
            oldest: 0,
        }
    }

    /// A message. What belongs to an earlier view has no effect.
    pub fn receive(&mut self, from: &Member, message: Message, now: Duration) -> Sent {
        match message {
            Message::View(view) => {
                let adopted = self.adopt(view).map(Message::Adopted);
                let adopted = adopted.map(|message| (from.clone(), message));
                adopted.into_iter().collect()
            }
            Message::Attempt(task) if self.is_current(task.id) => self.gather(task, now),
            Message::Ask {
                task,
                round,
                question,
                excluded,
            } if self.is_current(task.id) => {
                let round = Round {
                    task,
                    number: round,
                    question,
                    excluded,
                };
                self.ask(Some(from), round, now)
            }
            Message::Answer {
                id,
                round,
                answer,
                excluded,
            } if self.is_current(id) => self.answer(from, (id, round), answer, excluded, now),
            Message::Claimed { id, claimed } if self.is_current(id) => {
                let Some(gathering) = self.gatherings.get_mut(&id.serial) else {
                    return Sent::new();
                };
                let next = gathering.claimed(claimed, &self.profile);
                self.next(id, next, now)
            }
            _ => Sent::new(),
        }
    }

    /// Leaves out shards that take too long, if that is switched on and others have answered.
    pub fn tick(&mut self, now: Duration) -> Sent {
        let Some(timeout) = self.straggler_timeout else {
            return Sent::new();
        };
        let mut sent = Sent::new();
        let is_late = |merge: &Merge| {
            let is_partial = merge.answer.is_some() && !merge.waiting.is_empty();
            is_partial && now >= merge.began + timeout
        };
        let merges = self.merges.iter();
        let late: Vec<u64> = merges
            .filter(|(_, merge)| is_late(merge))
            .map(|(serial, _)| *serial)
            .collect();
        for serial in late {
            if let (Some(merge), Some(view)) = (self.merges.get_mut(&serial), &self.view) {
                for member in std::mem::take(&mut merge.waiting) {
                    merge.excluded.extend(view.parts_by(&self.me, &member));
                }
            }
            sent.extend(self.merged(serial, now));
        }
        sent
    }

    /// The epoch of the view.
    pub fn epoch(&self) -> Option<Epoch> {
        self.view.as_ref().map(|view| view.epoch)
    }

    fn is_current(&self, id: AttemptId) -> bool {
        self.epoch() == Some(id.epoch)
    }

    /// Adopts a view, unless it is older than the one that is there.
    pub(crate) fn adopt(&mut self, view: View) -> Option<Epoch> {
        let epoch = view.epoch;
        if self.epoch() > Some(epoch) {
            return None;
        }
        if self.epoch() != Some(epoch) {
            self.gatherings.clear();
            self.merges.clear();
            self.oldest = 0;
            self.view = Some(view);
        }
        Some(epoch)
    }

    fn gather(&mut self, task: Task, now: Duration) -> Sent {
        let id = task.id;
        let shards = self.view.as_ref().map_or(&[][..], |view| &view.shards);
        let gathering = Gathering::new(task, &self.profile, shards.len());
        match gathering {
            Some(gathering) => {
                self.gatherings.insert(id.serial, gathering);
                self.next(id, Next::Ask(Question::Count), now)
            }
            None => Sent::new(),
        }
    }

    /// Goes on with an attempt that is gathered here.
    fn next(&mut self, id: AttemptId, next: Next, now: Duration) -> Sent {
        let (Some(gathering), Some(view)) = (self.gatherings.get_mut(&id.serial), &self.view)
        else {
            return Sent::new();
        };
        match next {
            Next::Ask(question) => {
                gathering.round += 1;
                let round = Round {
                    task: gathering.task.clone(),
                    number: gathering.round,
                    question,
                    excluded: gathering.excluded.clone(),
                };
                self.ask(None, round, now)
            }
            Next::Claim(shard, nth) => {
                let shard = usize::try_from(shard).ok();
                let shard = shard.and_then(|shard| view.shards.get(shard));
                let claim = Message::Claim { id, nth };
                shard
                    .map(|shard| (shard.clone(), claim))
                    .into_iter()
                    .collect()
            }
            Next::Done(decision) => {
                let (leader, missing) = (view.leader.clone(), gathering.missing);
                self.gatherings.remove(&id.serial);
                let decided = Message::Decided {
                    id,
                    decision,
                    missing,
                };
                vec![(leader, decided)]
            }
        }
    }

    /// Passes a question on to all neighbours but the one that asked.
    fn ask(&mut self, origin: Option<&Member>, round: Round, now: Duration) -> Sent {
        let Some(view) = &self.view else {
            return Sent::new();
        };
        let (id, oldest) = (round.task.id, self.oldest.max(round.task.oldest));
        self.oldest = oldest;
        self.merges.retain(|serial, _| *serial >= oldest);
        self.gatherings.retain(|serial, _| *serial >= oldest);
        if id.serial < oldest {
            return Sent::new();
        }
        let is_excluded = |member: &Member| {
            let part = view.part_of(member);
            part.is_some_and(|part| round.excluded.contains(&part))
        };
        let neighbours = view.neighbours(&self.me).into_iter();
        let waiting: BTreeSet<Member> = neighbours
            .filter(|member| Some(*member) != origin && !is_excluded(member))
            .cloned()
            .collect();
        let merge = Merge {
            id,
            round: round.number,
            origin: origin.cloned(),
            waiting: waiting.clone(),
            answer: None,
            excluded: round.excluded.clone(),
            began: now,
        };
        self.merges.insert(id.serial, merge);
        let message = Message::Ask {
            task: round.task,
            round: round.number,
            question: round.question,
            excluded: round.excluded,
        };
        let to = waiting.into_iter().map(|to| (to, message.clone()));
        let mut sent: Sent = to.collect();
        sent.extend(self.merged(id.serial, now));
        sent
    }

    fn answer(
        &mut self,
        from: &Member,
        of: (AttemptId, u32),
        answer: Option<Box<Answer>>,
        excluded: BTreeSet<PartId>,
        now: Duration,
    ) -> Sent {
        let serial = of.0.serial;
        let Some(merge) = self.merges.get_mut(&serial) else {
            return Sent::new();
        };
        // An answer to an earlier question, or a second one.
        if (merge.id, merge.round) != of || !merge.waiting.remove(from) {
            return Sent::new();
        }
        merge.excluded.extend(excluded);
        match (&mut merge.answer, answer) {
            (Some(all), Some(more)) => all.merge(*more),
            (all, more) => *all = all.take().or(more),
        }
        self.merged(serial, now)
    }

    /// Goes on if no answer is missing any more.
    fn merged(&mut self, serial: u64, now: Duration) -> Sent {
        let is_complete = |merge: &Merge| merge.waiting.is_empty();
        if !self.merges.get(&serial).is_some_and(is_complete) {
            return Sent::new();
        }
        let Some(merge) = self.merges.remove(&serial) else {
            return Sent::new();
        };
        if let Some(origin) = merge.origin {
            let answer = Message::Answer {
                id: merge.id,
                round: merge.round,
                answer: merge.answer,
                excluded: merge.excluded,
            };
            return vec![(origin, answer)];
        }
        let Some(gathering) = self.gatherings.get_mut(&serial) else {
            return Sent::new();
        };
        let next = gathering.answered(merge.answer, merge.excluded);
        self.next(merge.id, next, now)
    }
}

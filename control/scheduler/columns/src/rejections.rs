//! The verdicts of all nodes on equal pods that none of them can have, and the victims that could go from each: an attempt looks
//! only at the nodes that something happened to since the one before.

use std::sync::Arc;

use dormouse_scheduler_decide::{Candidate, Code, Conclusion, Judge, Snapshot, Status, Tried};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::number::{at, count};
use crate::positions::Positions;

/// The verdict of a node that passes.
const PASSES: u32 = u32::MAX;
/// The verdict of no node.
const ABSENT: u32 = u32::MAX - 1;

/// Statuses by number, each with a number of nodes.
#[derive(Clone, Debug, Default)]
struct Statuses {
    all: Vec<(Status, usize)>,
    ids: HashMap<Status, u32, FixedState>,
}

/// What a trial of preemption on a node found.
#[derive(Clone, Debug)]
enum Trial {
    Failed(u32),
    Candidate(Arc<Candidate>),
}

/// Where nodes are judged.
#[derive(Clone, Copy)]
pub(crate) struct Court<'a> {
    pub(crate) judge: &'a Judge<'a>,
    pub(crate) snapshot: &'a Snapshot,
    /// The position of each slot in the order.
    pub(crate) positions: &'a [u32],
}

/// The verdicts of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Rejections {
    /// By slot: the number of a status, or a constant.
    verdicts: Vec<u32>,
    statuses: Statuses,
    trials: HashMap<u32, Trial, FixedState>,
    /// Why preemption failed on nodes.
    failures: Statuses,
    /// The positions of nodes where preemption may help.
    potential: Positions,
    /// The number of nodes that pass.
    passing_len: usize,
    /// A node whose verdict is about a pod that is nominated to it, and not about others.
    own: Option<u32>,
}

impl Statuses {
    fn id(&mut self, status: Status) -> u32 {
        let new = count(self.all.len());
        let id = *self.ids.entry(status.clone()).or_insert(new);
        if id == new {
            self.all.push((status, 0));
        }
        id
    }

    fn get(&self, id: u32) -> Option<&Status> {
        self.all.get(at(id)).map(|(status, _)| status)
    }

    fn counted(&self) -> impl Iterator<Item = (&Status, usize)> + Clone {
        let all = self.all.iter().filter(|(_, nodes_len)| *nodes_len > 0);
        all.map(|(status, nodes_len)| (status, *nodes_len))
    }
}

impl Rejections {
    /// Those of all nodes.
    pub(crate) fn new(court: Court<'_>) -> Self {
        let mut rejections = Self {
            verdicts: Vec::new(),
            statuses: Statuses::default(),
            trials: HashMap::default(),
            failures: Statuses::default(),
            potential: Positions::none(court.snapshot.nodes_len()),
            passing_len: 0,
            own: None,
        };
        let all = court.snapshot.slot_order().iter().copied();
        rejections.catch_up(court, all, None);
        rejections
    }

    /// Judges nodes again that something happened to, and the one that the pod is nominated to; the number of nodes.
    pub(crate) fn catch_up(
        &mut self,
        court: Court<'_>,
        touched: impl Iterator<Item = u32>,
        own: Option<u32>,
    ) -> u64 {
        self.verdicts.resize(court.snapshot.slots_len(), ABSENT);
        let before = std::mem::replace(&mut self.own, own);
        let mut judged = 0;
        for slot in touched.chain(before).chain(own) {
            self.judge(court, slot);
            judged += 1;
        }
        judged
    }

    fn judge(&mut self, court: Court<'_>, slot: u32) {
        let verdict = court
            .snapshot
            .view(slot)
            .map(|node| court.judge.verdict(node));
        let after = match verdict {
            None => ABSENT,
            Some(Ok(())) => PASSES,
            Some(Err(status)) => self.statuses.id(status),
        };
        self.trials.remove(&slot);
        let before = std::mem::replace(&mut self.verdicts[at(slot)], after);
        self.passing_len -= usize::from(before == PASSES);
        self.passing_len += usize::from(after == PASSES);
        if let Some((_, nodes_len)) = self.statuses.all.get_mut(at(before)) {
            *nodes_len -= 1;
        }
        if let Some((_, nodes_len)) = self.statuses.all.get_mut(at(after)) {
            *nodes_len += 1;
        }
        if after != ABSENT {
            let position = at(court.positions[at(slot)]);
            self.potential.set(position, self.is_potential(slot));
        }
    }

    fn is_potential(&self, slot: u32) -> bool {
        self.verdict(slot)
            .is_some_and(|status| status.code == Code::Unschedulable)
    }

    fn verdict(&self, slot: u32) -> Option<&Status> {
        self.statuses.get(*self.verdicts.get(at(slot))?)
    }

    /// The order of nodes is new.
    pub(crate) fn reorder(&mut self, order: &[u32]) {
        let mut potential = Positions::none(order.len());
        for (position, slot) in order.iter().enumerate() {
            potential.set(position, self.is_potential(*slot));
        }
        self.potential = potential;
    }

    /// Budgets may protect other pods now.
    pub(crate) fn forget_trials(&mut self) {
        self.trials.clear();
    }

    /// The number of nodes that pass.
    pub(crate) fn passing_len(&self) -> usize {
        self.passing_len
    }

    /// Whether all nodes reject the pod, without an error, by which an attempt ends before it looks at all.
    pub(crate) fn is_whole(&self) -> bool {
        let mut all = self.statuses.counted();
        self.passing_len == 0 && all.all(|(status, _)| status.code != Code::Error)
    }

    /// The end of the attempt of a pod that all nodes reject, which is nominated to one of them.
    pub(crate) fn conclude(&mut self, court: Court<'_>, nominated: Option<u32>) -> Conclusion {
        let nominated = nominated.and_then(|slot| self.verdict(slot)).cloned();
        let (trials, failures) = (&mut self.trials, &mut self.failures);
        let order = court.snapshot.slot_order();
        let verdicts = self.statuses.counted();
        court.judge.conclude(verdicts, nominated.as_ref(), |trial| {
            failures
                .all
                .iter_mut()
                .for_each(|(_, nodes_len)| *nodes_len = 0);
            let potential = self.potential.around(trial.offset());
            let found = court.judge.until_enough(trial, potential, |position| {
                let slot = order[position];
                let trial = trials.entry(slot);
                match trial.or_insert_with(|| preempt(court, slot, failures)) {
                    Trial::Candidate(candidate) => Some(Arc::clone(candidate)),
                    Trial::Failed(id) => {
                        failures.all[at(*id)].1 += 1;
                        None
                    }
                }
            });
            if found.is_empty() {
                return court.judge.without(failures.counted());
            }
            Tried::of(found)
        })
    }
}

/// Tries preemption on a node.
fn preempt(court: Court<'_>, slot: u32, failures: &mut Statuses) -> Trial {
    let node = court.snapshot.view(slot);
    match node.map(|node| court.judge.candidate(node)) {
        Some(Ok(candidate)) => Trial::Candidate(Arc::new(candidate)),
        Some(Err(status)) => Trial::Failed(failures.id(status)),
        None => Trial::Failed(failures.id(Status::unresolvable("the node is gone"))),
    }
}

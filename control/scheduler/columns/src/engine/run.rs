//! Runs of equal pods over nodes of few states: the scores of all groups of equal nodes stand from one pod to the next, but for
//! the groups that came or went.
//!
//! A node of a large cluster is seldom in a cache, and a placement reads several lines of it, each of which takes longer than
//! the decision. What a run draws next is known as far as it draws from the same nodes: those are read ahead of time, together.

use std::hint::black_box;

use dormouse_scheduler_decide::Snapshot;
use fastrand::Rng;

use super::Engine;
use crate::class::REJECTED;
use crate::demand::Demand;
use crate::failures::Key;
use crate::index::Index;
use crate::number::{at, count, wide};
use crate::row::Row;
use crate::segment::Segment;
use crate::state::Amounts;

/// Groups above which a search is better.
const GROUPS_MAX: usize = 32;
/// Draws that are foreseen at once.
const AHEAD: usize = 16;

/// The numbers of what decides for all nodes: objects, kinds of nodes, counters of pods.
type Revisions = (u64, u64, usize, usize);

/// The last pod's class, and the run of its pods if the one before was of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    last: Option<Key>,
    run: Option<Box<Run>>,
}

/// A run of pods of a class.
#[derive(Clone, Debug)]
struct Run {
    key: Key,
    revisions: Revisions,
    demand: Demand,
    /// The scores of each kind of nodes.
    bonus: Vec<f64>,
    /// The groups whose nodes can have the pod, with the scores of each.
    groups: Vec<(u32, f64)>,
    /// Changes of groups that are followed.
    seen: u64,
    rng: Rng,
    /// Draws that were foreseen and are left.
    left: usize,
    /// The number of the best nodes when it was looked ahead last.
    best_len: u64,
}

/// The best nodes of a run.
#[derive(Clone, Copy)]
struct Best {
    total: f64,
    len: u64,
}

impl Runs {
    /// Ends the run: nodes changed otherwise than by pods.
    pub(super) fn end(&mut self) {
        self.run = None;
    }

    /// Forgets the last class, too: rules have other numbers.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn is_on(&self) -> bool {
        self.run.is_some()
    }
}

impl Engine {
    /// One of the best nodes for a pod of the same class as the one before, if a run holds all that it needs.
    pub(super) fn find_again(&mut self, key: &Key) -> Option<u32> {
        let mut run = self.runs.run.take().filter(|run| run.key == *key)?;
        if run.revisions != self.revisions() || self.index.nominated.len() > 0 {
            return None;
        }
        let slot = run.next(&self.index, &self.cluster)?;
        self.looked_at += wide(run.groups.len());
        self.runs.run = Some(run);
        Some(slot)
    }

    /// Notes that a node was found by a search, which can begin a run.
    pub(super) fn begin_run(&mut self, key: Key) {
        if self.runs.last == Some(key) {
            self.runs.run = self.run(key).map(Box::new);
        } else {
            self.runs.last = Some(key);
        }
    }

    fn run(&mut self, key: Key) -> Option<Run> {
        let (profile, rules, request) = key;
        let (scheduler, weights) = &self.profiles[profile];
        let nodes_len = self.cluster.nodes_len();
        let class = self.classes.get(&(rules, profile))?;
        let segment = self.index.only_segment()?;
        if !class.is_plain()
            || scheduler.limit(nodes_len) < nodes_len
            || segment.groups.len() > GROUPS_MAX
        {
            return None;
        }
        let mut run = Run {
            key,
            revisions: self.revisions(),
            demand: Demand::new(Amounts::of(&request)?, weights.as_ref()?),
            bonus: class.bonus.clone(),
            groups: Vec::new(),
            seen: segment.changes.len,
            rng: self.rng.fork(),
            left: 0,
            best_len: 0,
        };
        let all = 0..count(segment.groups.len());
        all.for_each(|group| run.rank(segment, group));
        Some(run)
    }

    fn revisions(&self) -> Revisions {
        let index = &self.index;
        let objects = self.cluster.objects_revision();
        let (kinds, counters) = (index.kinds.len(), index.counters.len());
        (objects, index.kinds_revision, kinds, counters)
    }
}

impl Run {
    /// The node of the next pod.
    fn next(&mut self, index: &Index, cluster: &Snapshot) -> Option<u32> {
        let segment = index.only_segment()?;
        for group in segment.changes.since(self.seen)? {
            self.groups.retain(|(other, _)| *other != group);
            self.rank(segment, group);
        }
        self.seen = segment.changes.len;
        let best = self.best(segment)?;
        if self.groups.len() > GROUPS_MAX {
            return None;
        }
        let index_of_one = if best.len > 1 {
            self.rng.u64(0..best.len)
        } else {
            0
        };
        let slot = self.pick(segment, best, index_of_one)?;
        if best.len > 1 {
            self.look_ahead(segment, best, slot, (&index.rows, cluster));
        }
        Some(slot)
    }

    /// Adds a group, if there is one of this number whose nodes can have the pod.
    fn rank(&mut self, segment: &Segment, id: u32) {
        let group = &segment.groups[at(id)];
        let bonus = self.bonus[at(segment.families[at(group.family)].kind)];
        let has_nodes = group.members.len() > 0;
        if has_nodes && bonus != REJECTED && self.demand.fits(&group.state) {
            let of_amounts = self.demand.score(&group.state, group.state.evenness());
            self.groups.push((id, of_amounts + bonus));
        }
    }

    fn best(&self, segment: &Segment) -> Option<Best> {
        let totals = self.groups.iter().map(|(_, total)| *total);
        let total = totals.reduce(f64::max)?;
        let members = self
            .groups_of(total)
            .map(|group| segment.groups[at(group)].members.len());
        let len = wide(members.sum());
        Some(Best { total, len })
    }

    fn groups_of(&self, total: f64) -> impl DoubleEndedIterator<Item = u32> {
        let all = self.groups.iter();
        all.filter_map(move |(group, other)| (*other >= total).then_some(*group))
    }

    /// The slot of an index among the best nodes. Those of the first group are first, and then the others backward from the
    /// end: when a node goes from the first group to the end of the last one, most nodes keep their index.
    fn pick(&self, segment: &Segment, best: Best, index: u64) -> Option<u32> {
        let members = |group: u32| segment.groups[at(group)].members.as_slice();
        let mut groups = self.groups_of(best.total);
        let first = members(groups.next()?);
        let index = usize::try_from(index).ok()?;
        if index < first.len() {
            return first.get(index).copied();
        }
        let mut left = usize::try_from(best.len).ok()?.checked_sub(index + 1)?;
        for group in groups.rev() {
            let members = members(group);
            if left < members.len() {
                return members.get(left).copied();
            }
            left -= members.len();
        }
        None
    }

    /// After a draw: reads what placements on its node and on those of the next draws change, once all is drawn that was
    /// foreseen. If there were fewer of the best nodes than before, it is expected that each draw takes one.
    fn look_ahead(&mut self, segment: &Segment, best: Best, slot: u32, nodes: (&[Row], &Snapshot)) {
        self.left = self.left.checked_sub(1).unwrap_or(AHEAD - 1);
        if self.left < AHEAD - 1 {
            return;
        }
        let fewer = u64::from(best.len < self.best_len);
        self.best_len = best.len;
        let mut rng = self.rng.clone();
        let mut slots = [slot; AHEAD];
        let mut len = best.len;
        for foreseen in &mut slots[1..] {
            len = len.saturating_sub(fewer).max(1);
            let best = Best { len, ..best };
            let drawn = self.pick(segment, best, rng.u64(0..len));
            *foreseen = drawn.unwrap_or(slot);
        }
        read(nodes, &slots);
    }
}

/// Reads what changes when pods come to these nodes.
fn read((rows, cluster): (&[Row], &Snapshot), slots: &[u32]) {
    let rows = slots.iter().map(|slot| &rows[at(*slot)]);
    // Both ends of a row: it can be in two cache lines.
    let sums = rows.map(|row| row.state.cpu + f64::from(row.segment));
    black_box(sums.sum::<f64>());
    cluster.read_ahead(slots);
}

//! What is known of pods that no node could have, by class: it is kept while pods of the class come again.

use dormouse_scheduler_decide::{Judge, NodeEvent, Snapshot};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::counters::Gone;
use crate::failures::Key;
use crate::number::{at, count, wide};
use crate::rejections::{Court, Rejections};

/// Verdicts that are kept, of all classes together: eight classes of a million nodes.
const VERDICTS_MAX: usize = 1 << 23;
/// Classes that are kept at most.
const CLASSES_MAX: usize = 1 << 6;
/// Passing nodes beyond which a class is not one that fails.
const PASSING_MAX: usize = 64;
/// Events that are kept for classes that have not followed them, beyond two for each node.
const TOUCHED_SPARE: usize = 1 << 10;

/// The rejections of a class, and what they have followed.
#[derive(Clone, Debug)]
struct Page {
    rejections: Rejections,
    /// The number of events.
    seen: u64,
    objects: u64,
    order: u64,
    used: u64,
}

/// The rejections of all classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pages: HashMap<Key, Page, FixedState>,
    /// The slots of nodes that something happened to, from the event of a number on.
    touched: Vec<u32>,
    first: u64,
    /// The number of those that some class may have followed.
    read_len: usize,
    /// Grows with each new order of nodes.
    order: u64,
    positions: Vec<u32>,
    positions_of: u64,
    turn: u64,
}

impl Ledger {
    pub(crate) fn follow<P>(&mut self, event: &NodeEvent<P>, slots_len: usize) {
        if self.pages.is_empty() {
            return;
        }
        let unread = &self.touched[self.read_len..];
        if unread.last() != Some(&event.slot()) {
            self.touched.push(event.slot());
        }
        if self.touched.len() > slots_len * 2 + TOUCHED_SPARE {
            self.trim();
        }
    }

    /// The order of nodes is new.
    pub(crate) fn reorder(&mut self) {
        self.order += 1;
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.pages.contains_key(key)
    }

    /// Forgets rules.
    pub(crate) fn forget(&mut self, gone: &Gone) {
        self.pages.retain(|(_, rules, _), _| !gone.contains(rules));
    }

    /// The rejections of a class as of now, with the place to go on, and the number of nodes that were judged; `None` if nodes pass, or
    /// an attempt ends otherwise.
    pub(crate) fn rejections<'a>(
        &'a mut self,
        key: Key,
        judge: &'a Judge<'a>,
        snapshot: &'a Snapshot,
        own: Option<u32>,
    ) -> (u64, Option<(Court<'a>, &'a mut Rejections)>) {
        let is_new = !self.has(&key);
        if is_new {
            self.make_room(snapshot.slots_len());
        }
        self.arrange(snapshot);
        self.read_len = self.touched.len();
        let end = self.first + wide(self.touched.len());
        let objects = snapshot.objects_revision();
        let court = Court {
            judge,
            snapshot,
            positions: &self.positions,
        };
        let page = self.pages.entry(key).or_insert_with(|| Page {
            rejections: Rejections::new(court),
            seen: end,
            objects,
            order: self.order,
            used: 0,
        });
        if page.order != self.order {
            page.rejections.reorder(snapshot.slot_order());
        }
        if page.objects != objects {
            page.rejections.forget_trials();
        }
        let missed = usize::try_from(page.seen - self.first).unwrap_or(usize::MAX);
        let touched = self.touched[missed.min(self.touched.len())..].iter();
        let mut judged = page.rejections.catch_up(court, touched.copied(), own);
        if is_new {
            judged += wide(snapshot.nodes_len());
        }
        (page.seen, page.objects, page.order) = (end, objects, self.order);
        self.turn += 1;
        page.used = self.turn;
        if page.rejections.passing_len() > PASSING_MAX {
            self.pages.remove(&key);
            return (judged, None);
        }
        let page = self.pages.get_mut(&key);
        let whole = page.filter(|page| page.rejections.is_whole());
        (judged, whole.map(|page| (court, &mut page.rejections)))
    }

    /// The class goes that was not asked about for longest.
    fn make_room(&mut self, slots_len: usize) {
        let most = (VERDICTS_MAX / slots_len.max(1)).clamp(1, CLASSES_MAX);
        if self.pages.len() >= most {
            let oldest = self.pages.iter().min_by_key(|(_, page)| page.used);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.pages.remove(&key);
            }
        }
    }

    /// Classes go that have missed too many events.
    fn trim(&mut self) {
        let half = self.touched.len() / 2;
        self.touched.drain(..half);
        self.read_len = self.read_len.saturating_sub(half);
        self.first += wide(half);
        let first = self.first;
        self.pages.retain(|_, page| page.seen >= first);
    }

    /// The number of events that are kept.
    #[cfg(test)]
    pub(crate) fn touched_len(&self) -> usize {
        self.touched.len()
    }

    /// Finds the positions of all nodes, if their order is new.
    fn arrange(&mut self, snapshot: &Snapshot) {
        if self.positions_of != self.order || self.positions.is_empty() {
            self.positions_of = self.order;
            self.positions.clear();
            self.positions.resize(snapshot.slots_len(), u32::MAX);
            for (position, slot) in snapshot.slot_order().iter().enumerate() {
                self.positions[at(*slot)] = count(position);
            }
        }
    }
}

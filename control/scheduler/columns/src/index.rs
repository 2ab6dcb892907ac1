//! The columns: an index over a snapshot that follows each event.

use std::collections::BTreeSet;
use std::ops::Deref;

use dormouse_scheduler_decide::facts::{NodeView, Reads};
use dormouse_scheduler_decide::{NodeEvent, Pod, Snapshot};

use crate::class::HOSTNAME;
use crate::counters::{Counters, Gone};
use crate::kinds::Kinds;
use crate::nominated::Nominated;
use crate::number::{at, count};
use crate::row::Row;
use crate::segment::{Place, Segment};
use crate::state::State;

/// Kinds that are known, beyond one for each node, at which those that are gone are forgotten.
const KINDS_SPARE: usize = 1 << 10;

/// An index over a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) rows: Vec<Row>,
    pub(crate) segments: Vec<Segment>,
    /// The number of nodes of a segment, all of which are neighbours in the order; `None` for one segment of all nodes.
    pub(crate) segment_len: Option<usize>,
    /// The position of each slot in the order, if there are several segments.
    pub(crate) positions: Vec<u32>,
    pub(crate) kinds: Kinds,
    pub(crate) counters: Counters,
    pub(crate) nominated: Nominated,
    /// The number of counters whose keys are read of nodes.
    keyed_len: usize,
    /// The number of nodes with a host name that is not the node's name.
    misnamed: Vec<bool>,
    pub(crate) misnamed_len: usize,
    /// Grows each time that the kinds of all nodes are recomputed.
    pub(crate) kinds_revision: u64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            segments: vec![Segment::default()],
            segment_len: None,
            positions: Vec::new(),
            kinds: Kinds::default(),
            counters: Counters::default(),
            nominated: Nominated::default(),
            keyed_len: 0,
            misnamed: Vec::new(),
            misnamed_len: 0,
            kinds_revision: 0,
        }
    }

    /// The segment of all nodes, if there is one and all of their amounts are comparable.
    pub(crate) fn only_segment(&self) -> Option<&Segment> {
        match self.segments.as_slice() {
            [one] if self.segment_len.is_none() && one.odd.is_empty() => Some(one),
            _ => None,
        }
    }

    /// Follows an event.
    pub(crate) fn follow<P: Deref<Target = Pod>>(
        &mut self,
        snapshot: &Snapshot,
        event: &NodeEvent<P>,
    ) {
        let slot = event.slot();
        if self.rows.len() <= at(slot) {
            self.rows.resize(at(slot) + 1, Row::empty());
            self.misnamed.resize(at(slot) + 1, false);
        }
        let node = snapshot.view(slot);
        if matches!(event, NodeEvent::Node(_) | NodeEvent::Nominated(_)) {
            self.nominated.follow(snapshot, slot, node);
        }
        let is_node = matches!(event, NodeEvent::Node(_));
        if is_node || node.is_some_and(NodeView::has_images) {
            self.set_kind(slot, node);
        }
        match event {
            NodeEvent::Node(_) | NodeEvent::Nominated(_) => {}
            NodeEvent::Added(_, pod) => self.count(pod, slot, true),
            NodeEvent::Removed(_, pod) => self.count(pod, slot, false),
        }
        self.place(slot, node);
    }

    fn count(&mut self, pod: &Pod, slot: u32, comes: bool) {
        let kind = self.rows[at(slot)].kind;
        self.counters.count(pod, slot, kind, comes);
    }

    fn set_kind(&mut self, slot: u32, node: Option<NodeView<'_>>) {
        let is_misnamed =
            node.is_some_and(|node| node.label(HOSTNAME).is_some() && !node.is_named_as_host());
        let before = std::mem::replace(&mut self.misnamed[at(slot)], is_misnamed);
        self.misnamed_len += usize::from(is_misnamed);
        self.misnamed_len -= usize::from(before);
        if let Some(node) = node {
            let kind = self.kinds.of(node);
            let old = self.rows[at(slot)].kind;
            if kind != old {
                self.take_out(slot);
                self.counters.move_node(slot, old, kind);
                self.rows[at(slot)].kind = kind;
            }
        }
    }

    /// Puts a node where its amounts belong.
    fn place(&mut self, slot: u32, node: Option<NodeView<'_>>) {
        let Some(node) = node else {
            self.take_out(slot);
            return;
        };
        let state = State::of(&node.usage());
        let row = &self.rows[at(slot)];
        let is_same = match (row.place, &state) {
            (Place::Nowhere, _) => false,
            (Place::Odd(_), state) => state.is_none(),
            (Place::Group(..), state) => state.is_some_and(|state| state.is_same(&row.state)),
        };
        if !is_same {
            self.take_out(slot);
            self.put_in(slot, state.as_ref());
        }
    }

    fn put_in(&mut self, slot: u32, state: Option<&State>) {
        let position = self.positions.get(at(slot)).copied().unwrap_or(0);
        let segment = self.segment_len.map_or(0, |len| at(position) / len);
        let row = &mut self.rows[at(slot)];
        row.segment = count(segment);
        row.place = self.segments[segment].insert(slot, row.kind, state);
        if let Some(state) = state {
            row.state = *state;
            row.evenness = state.evenness();
        }
    }

    fn take_out(&mut self, slot: u32) {
        let row = &mut self.rows[at(slot)];
        let place = std::mem::replace(&mut row.place, Place::Nowhere);
        let moved = self.segments[at(row.segment)].remove(place);
        if let Some(moved) = moved {
            self.rows[at(moved.slot)].place = moved.place;
        }
    }

    /// Reads more of nodes; recomputes the kinds of all nodes for labels that are new, and of the nodes that report them for images
    /// that are.
    pub(crate) fn read(&mut self, snapshot: &Snapshot, reads: &Reads) {
        let images = self.kinds.read_images(&reads.images);
        if self.kinds.read_keys(&reads.keys) {
            self.find_kinds(snapshot);
            return;
        }
        self.move_nodes_with(snapshot, &images);
    }

    /// Recomputes the kinds of the nodes that report one of some images.
    fn move_nodes_with(&mut self, snapshot: &Snapshot, images: &BTreeSet<String>) {
        for image in images {
            for slot in snapshot.slots_with_image(image) {
                let node = snapshot.view(slot);
                self.set_kind(slot, node);
                self.place(slot, node);
            }
        }
    }

    /// Reads the keys of terms that pods have themselves.
    pub(crate) fn read_terms(&mut self, snapshot: &Snapshot) {
        let mut reads = Reads::default();
        for (_, counter) in self.counters.from(self.keyed_len) {
            let key = counter.census.key().filter(|key| *key != HOSTNAME);
            reads.keys.extend(key.map(str::to_owned));
        }
        self.keyed_len = self.counters.len();
        self.read(snapshot, &reads);
        if self.kinds.len() > self.rows.len() * 2 + KINDS_SPARE {
            self.find_kinds(snapshot);
        }
    }

    /// Forgets rules of pods that are gone, and what was read for them; the numbers of the rules.
    pub(crate) fn forget(&mut self, snapshot: &Snapshot) -> Gone {
        let gone = self.counters.forget();
        self.keyed_len = self.counters.len();
        let unread = self.kinds.retain_images(&self.counters.images());
        self.move_nodes_with(snapshot, &unread);
        gone
    }

    fn find_kinds(&mut self, snapshot: &Snapshot) {
        self.kinds.clear();
        self.kinds_revision += 1;
        for &slot in snapshot.slot_order() {
            if let Some(node) = snapshot.view(slot) {
                self.rows[at(slot)].kind = self.kinds.of(node);
            }
        }
        let rows = &self.rows;
        self.counters.recount_kinds(|slot| rows[at(slot)].kind);
        self.rebuild(snapshot);
    }

    /// Divides the order of nodes into segments of another length, or another order.
    pub(crate) fn divide(&mut self, snapshot: &Snapshot, segment_len: Option<usize>) {
        if segment_len.is_none() && self.segment_len.is_none() {
            return;
        }
        self.segment_len = segment_len;
        self.positions.clear();
        if segment_len.is_some() {
            self.positions.resize(snapshot.slots_len(), 0);
            for (position, slot) in (0..).zip(snapshot.slot_order()) {
                self.positions[at(*slot)] = position;
            }
        }
        self.rebuild(snapshot);
    }

    /// Puts all nodes into new segments.
    fn rebuild(&mut self, snapshot: &Snapshot) {
        let order = snapshot.slot_order();
        let segments_len = self.segment_len.map_or(1, |len| order.len().div_ceil(len));
        self.segments = vec![Segment::default(); segments_len.max(1)];
        for row in &mut self.rows {
            row.place = Place::Nowhere;
        }
        for &slot in order {
            if let Some(node) = snapshot.view(slot) {
                self.put_in(slot, State::of(&node.usage()).as_ref());
            }
        }
    }
}

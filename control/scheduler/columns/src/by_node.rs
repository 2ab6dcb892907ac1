//! Counted pods by node, and the nodes of each kind by how many they have: nodes of a level have equal scores for their pods.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::number::{at, count};

/// Pods by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByNode {
    spots: HashMap<u32, Spot, FixedState>,
    levels: BTreeMap<Level, Vec<u32>>,
}

/// The nodes of a kind with a number of counted pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level {
    pub(crate) kind: u32,
    pub(crate) pods: u32,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    pods: u32,
    /// Its index in its level.
    index: u32,
}

impl ByNode {
    /// The number of nodes with pods.
    pub(crate) fn len(&self) -> usize {
        self.spots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.spots.contains_key(&slot)
    }

    /// The pods on a node.
    pub(crate) fn pods(&self, slot: u32) -> u32 {
        self.spots.get(&slot).map_or(0, |spot| spot.pods)
    }

    /// The nodes with pods.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.spots.keys().copied()
    }

    /// The nodes with pods, by their kinds and the numbers of their pods.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (Level, &[u32])> {
        let all = self.levels.iter();
        all.map(|(level, slots)| (*level, slots.as_slice()))
    }

    /// Counts a pod that came to a node of a kind, or left it.
    pub(crate) fn count(&mut self, slot: u32, kind: u32, comes: bool) {
        let before = self.pods(slot);
        let after = if comes { before + 1 } else { before - 1 };
        self.leave(slot, kind);
        self.enter(slot, Level { kind, pods: after });
    }

    /// A node is of another kind now; the number of its pods.
    pub(crate) fn move_node(&mut self, slot: u32, from: u32, to: u32) -> u32 {
        let pods = self.pods(slot);
        self.leave(slot, from);
        self.enter(slot, Level { kind: to, pods });
        pods
    }

    /// Recomputes the levels, after the kinds of all nodes were recomputed.
    pub(crate) fn recount_kinds(&mut self, kind: impl Fn(u32) -> u32) {
        self.levels.clear();
        for (slot, known) in &mut self.spots {
            let kind = kind(*slot);
            let level = Level {
                kind,
                pods: known.pods,
            };
            let slots = self.levels.entry(level).or_default();
            known.index = count(slots.len());
            slots.push(*slot);
        }
    }

    fn enter(&mut self, slot: u32, level: Level) {
        if level.pods > 0 {
            let slots = self.levels.entry(level).or_default();
            let index = count(slots.len());
            slots.push(slot);
            let pods = level.pods;
            self.spots.insert(slot, Spot { pods, index });
        }
    }

    fn leave(&mut self, slot: u32, kind: u32) {
        let Some(Spot { pods, index }) = self.spots.remove(&slot) else {
            return;
        };
        let level = Level { kind, pods };
        let Some(slots) = self.levels.get_mut(&level) else {
            return;
        };
        slots.swap_remove(at(index));
        if let Some(moved) = slots.get(at(index)) {
            self.spots.entry(*moved).or_default().index = index;
        } else if slots.is_empty() {
            self.levels.remove(&level);
        }
    }
}

//! Groups of nodes with equal amounts, for which resource filters and scores have equal results.

use crate::demand::Bounds;
use crate::number::count;
use crate::state::State;
use crate::tops::Span;

/// Bits of a coordinate.
const PLACE_BITS: u32 = 16;

/// The slots of a group. Most groups have one node, which needs no memory of its own.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    One(u32),
    Many(Vec<u32>),
}

/// Nodes of one family with the same amounts.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) family: u32,
    pub(crate) state: State,
    pub(crate) members: Members,
    /// Its index in its cell.
    pub(crate) index: u32,
}

/// A group within its cell: what a search reads of it, next to that of the other groups of the cell.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) evenness: f64,
    pub(crate) group: u32,
    pub(crate) nodes_len: u32,
}

impl Members {
    /// Those of a group that is gone.
    pub(crate) const fn none() -> Self {
        Self::Many(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Many(slots) => slots,
        }
    }

    /// Adds a slot; its index.
    pub(crate) fn push(&mut self, slot: u32) -> usize {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, slot]),
            Self::Many(slots) => slots.push(slot),
        }
        self.len() - 1
    }

    /// Removes the slot of an index from several; the slot that has the index then.
    pub(crate) fn swap_remove(&mut self, index: usize) -> Option<u32> {
        let Self::Many(slots) = self else {
            return None;
        };
        slots.swap_remove(index);
        let moved = slots.get(index).copied();
        if let [last] = slots.as_slice() {
            *self = Self::One(*last);
        }
        moved
    }
}

impl Entry {
    pub(crate) fn span(&self) -> Span {
        Span::of(&self.state, self.evenness)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds::of(&self.state, self.evenness)
    }
}

impl Group {
    /// Its entry, by its number.
    pub(crate) fn entry(&self, group: u32) -> Entry {
        Entry {
            state: self.state,
            evenness: self.state.evenness(),
            group,
            nodes_len: count(self.members.len()),
        }
    }

    /// Its coordinates: the shares of CPU and memory that are used.
    pub(crate) fn place(&self) -> (u32, u32) {
        let state = &self.state;
        (
            coordinate(state.scored_cpu / state.cpu),
            coordinate(state.scored_memory / state.memory),
        )
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is bounded before"
)]
fn coordinate(share: f64) -> u32 {
    let scale = f64::from(1_u32 << PLACE_BITS);
    (share * scale).clamp(0.0, scale - 1.0) as u32
}

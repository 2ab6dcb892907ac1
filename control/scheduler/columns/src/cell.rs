//! A cell of a tree: groups, or the cells that it is divided into.

use crate::demand::Bounds;
use crate::group::Entry;
use crate::number::{at, count};

/// Cells that a cell is divided into: 4 by 4.
pub(crate) const PARTS: usize = 16;

/// What is in a cell.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Groups(Vec<Entry>),
    Parts(Parts),
}

/// The parts of a divided cell: cells that are next to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) first: u32,
    /// The bit of each part that has had nodes.
    pub(crate) used: u32,
}

/// A cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Those of its groups, or wider; missing for an empty cell.
    pub(crate) bounds: Option<Bounds>,
    pub(crate) nodes_len: u32,
    pub(crate) level: u32,
    pub(crate) body: Body,
}

impl Cell {
    pub(crate) fn new(level: u32) -> Self {
        Self {
            bounds: None,
            nodes_len: 0,
            level,
            body: Body::Groups(Vec::new()),
        }
    }

    pub(crate) fn take_in(&mut self, bounds: &Bounds, nodes_len: u32) {
        match &mut self.bounds {
            Some(mine) => mine.widen(bounds),
            None => self.bounds = Some(*bounds),
        }
        self.nodes_len += nodes_len;
    }
}

/// The part of a cell of a level to which coordinates belong.
pub(crate) fn part((x, y): (u32, u32), level: u32) -> usize {
    let shift = 14 - 2 * level;
    at((((x >> shift) & 3) << 2) | ((y >> shift) & 3))
}

impl Parts {
    /// Their number among all parts: those of the first follow the root.
    pub(crate) fn number(self) -> usize {
        at(self.first) / PARTS
    }

    /// The part to which coordinates belong.
    pub(crate) fn of(self, place: (u32, u32), level: u32) -> u32 {
        self.first + count(part(place, level))
    }

    /// The same, for a group that is added to it.
    pub(crate) fn take(&mut self, place: (u32, u32), level: u32) -> u32 {
        self.used |= 1 << part(place, level);
        self.of(place, level)
    }
}

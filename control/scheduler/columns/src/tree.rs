//! The groups of a family by the shares of CPU and memory that are used: a tree of cells, each with bounds of its nodes'
//! amounts, so that whole cells are left out or counted without a look at their nodes.

use crate::cell::{Body, Cell, PARTS, Parts, part};
use crate::demand::Demand;
use crate::group::Group;
use crate::number::{at, count};
use crate::tops::{Span, Spans, Tops};

/// Groups of a cell at which it is divided.
const GROUPS_MAX: usize = 24;
/// Times that cells are divided.
const LEVEL_MAX: u32 = 7;
/// The cell of all groups.
pub(crate) const ROOT: u32 = 0;

/// A tree of cells.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    cells: Vec<Cell>,
    /// What bounds the scores of the parts of a cell, by the number of the parts.
    spans: Vec<Spans>,
    /// The first of cells that were the parts of a cell.
    free: Vec<u32>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            cells: vec![Cell::new(0)],
            spans: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn cell(&self, id: u32) -> &Cell {
        &self.cells[at(id)]
    }

    /// The parts of a cell that have nodes.
    pub(crate) fn parts(&self, parts: Parts) -> impl Iterator<Item = u32> {
        let mut left = parts.used;
        let next = move || {
            let part = (left != 0).then(|| parts.first + left.trailing_zeros());
            left &= left.wrapping_sub(1);
            part
        };
        std::iter::from_fn(next).filter(|part| self.cells[at(*part)].nodes_len > 0)
    }

    /// The parts of a cell with nodes, and what these score at most.
    pub(crate) fn tops(&self, parts: Parts, demand: &Tops) -> impl Iterator<Item = (f32, u32)> {
        let tops = demand.of_spans(&self.spans[parts.number()]);
        let top = move |part: u32| (tops[at(part - parts.first)], part);
        self.parts(parts).map(top)
    }

    /// Adds a group.
    pub(crate) fn insert(&mut self, groups: &mut [Group], id: u32) {
        let place = groups[at(id)].place();
        let entry = groups[at(id)].entry(id);
        let bounds = entry.bounds();
        let mut span = None;
        let mut cell = ROOT;
        loop {
            let here = &mut self.cells[at(cell)];
            here.take_in(&bounds, entry.nodes_len);
            match &mut here.body {
                Body::Groups(list) => {
                    groups[at(id)].index = count(list.len());
                    list.push(entry);
                    if list.len() > GROUPS_MAX && here.level < LEVEL_MAX {
                        self.divide(groups, cell);
                    }
                    return;
                }
                Body::Parts(parts) => {
                    let span = span.get_or_insert_with(|| entry.span());
                    self.spans[parts.number()].widen(part(place, here.level), span);
                    cell = parts.take(place, here.level);
                }
            }
        }
    }

    fn divide(&mut self, groups: &mut [Group], cell: u32) {
        let level = self.cells[at(cell)].level;
        let mut parts = self.new_parts(level + 1);
        let empty = Body::Groups(Vec::new());
        let body = std::mem::replace(&mut self.cells[at(cell)].body, empty);
        let Body::Groups(list) = body else {
            return;
        };
        for entry in list {
            let group = &mut groups[at(entry.group)];
            let place = group.place();
            self.spans[parts.number()].widen(part(place, level), &entry.span());
            let part = &mut self.cells[at(parts.take(place, level))];
            part.take_in(&entry.bounds(), entry.nodes_len);
            if let Body::Groups(list) = &mut part.body {
                group.index = count(list.len());
                list.push(entry);
            }
        }
        self.cells[at(cell)].body = Body::Parts(parts);
    }

    fn new_parts(&mut self, level: u32) -> Parts {
        let first = self.free.pop().unwrap_or(count(self.cells.len()));
        if at(first) == self.cells.len() {
            self.cells.extend((0..PARTS).map(|_| Cell::new(level)));
            self.spans.push(Spans::default());
        } else {
            self.cells[at(first)..][..PARTS].fill_with(|| Cell::new(level));
        }
        let parts = Parts { first, used: 0 };
        self.spans[parts.number()] = Spans::default();
        parts
    }

    /// Counts a node that came to a group, or left it and did not leave it empty: by its coordinates and its index.
    pub(crate) fn resize(&mut self, (place, index): ((u32, u32), u32), comes: bool) {
        let resized = |len: u32| if comes { len + 1 } else { len - 1 };
        let mut cell = ROOT;
        loop {
            let here = &mut self.cells[at(cell)];
            here.nodes_len = resized(here.nodes_len);
            match &mut here.body {
                Body::Groups(list) => {
                    let entry = &mut list[at(index)];
                    entry.nodes_len = resized(entry.nodes_len);
                    return;
                }
                Body::Parts(parts) => cell = parts.of(place, here.level),
            }
        }
    }

    /// Removes a group of one node.
    pub(crate) fn remove(&mut self, groups: &mut [Group], id: u32) {
        let (place, index) = (groups[at(id)].place(), at(groups[at(id)].index));
        if let Some(moved) = self.remove_from(ROOT, place, index) {
            groups[at(moved)].index = count(index);
        }
    }

    /// Removes a group of one node from a cell; the group that has its index then.
    fn remove_from(&mut self, cell: u32, place: (u32, u32), index: usize) -> Option<u32> {
        let here = &mut self.cells[at(cell)];
        let level = here.level;
        here.nodes_len -= 1;
        let is_empty = here.nodes_len == 0;
        if is_empty {
            here.bounds = None;
        }
        match &mut here.body {
            Body::Groups(list) => {
                list.swap_remove(index);
                list.get(index).map(|moved| moved.group)
            }
            Body::Parts(_) if is_empty => {
                self.clear(cell);
                None
            }
            Body::Parts(parts) => {
                let (parts, id) = (*parts, parts.of(place, level));
                let moved = self.remove_from(id, place, index);
                if let Some(left) = self.left(id) {
                    self.spans[parts.number()].set(part(place, level), &left);
                }
                moved
            }
        }
    }

    /// What bounds the scores of a cell that is less than before; `None` if that is not known without a look at its groups.
    fn left(&self, cell: u32) -> Option<Span> {
        match &self.cell(cell).body {
            Body::Groups(list) => list.is_empty().then_some(Span::EMPTY),
            Body::Parts(parts) => Some(self.spans[parts.number()].all()),
        }
    }

    /// Makes an empty cell one that is not divided.
    fn clear(&mut self, cell: u32) {
        let body = Body::Groups(Vec::new());
        let body = std::mem::replace(&mut self.cells[at(cell)].body, body);
        if let Body::Parts(parts) = body {
            (parts.first..)
                .take(PARTS)
                .for_each(|part| self.clear(part));
            self.free.push(parts.first);
        }
    }

    /// The slot of an index among the nodes of a cell.
    pub(crate) fn slot(&self, groups: &[Group], mut cell: u32, mut index: u64) -> Option<u32> {
        let mut passes = |len: u64| {
            let is_past = index >= len;
            index -= if is_past { len } else { 0 };
            is_past
        };
        loop {
            match &self.cell(cell).body {
                Body::Parts(parts) => {
                    let mut parts = self.parts(*parts);
                    cell = parts.find(|part| !passes(u64::from(self.cell(*part).nodes_len)))?;
                }
                Body::Groups(list) => {
                    let mut list = list.iter();
                    let entry = list.find(|entry| !passes(u64::from(entry.nodes_len)))?;
                    let slots = groups[at(entry.group)].members.as_slice();
                    return slots.get(usize::try_from(index).ok()?).copied();
                }
            }
        }
    }

    /// Whether one of the nodes of a cell passes.
    pub(crate) fn any(
        &self,
        groups: &[Group],
        cell: u32,
        passes: &mut impl FnMut(u32) -> bool,
    ) -> bool {
        match &self.cell(cell).body {
            Body::Parts(parts) => {
                let mut parts = self.parts(*parts);
                parts.any(|part| self.any(groups, part, passes))
            }
            Body::Groups(list) => {
                let mut slots = list
                    .iter()
                    .flat_map(|entry| groups[at(entry.group)].members.as_slice());
                slots.any(|slot| passes(*slot))
            }
        }
    }

    /// Whether the demand is known to fit on all nodes.
    pub(crate) fn fits_all(&self, demand: &Demand) -> bool {
        let root = self.cell(ROOT);
        let bounds = root.bounds.as_ref().filter(|_| root.nodes_len > 0);
        bounds.is_none_or(|all| demand.range(all).is_some_and(|range| range.fits_all))
    }

    /// The number of nodes that the demand fits on.
    pub(crate) fn fitting(&self, demand: &Demand, cell: u32) -> u64 {
        let cell = self.cell(cell);
        let Some(range) = cell.bounds.as_ref().and_then(|all| demand.range(all)) else {
            return 0;
        };
        if range.fits_all {
            return u64::from(cell.nodes_len);
        }
        match &cell.body {
            Body::Groups(list) => {
                let fitting = list.iter().filter(|entry| demand.fits(&entry.state));
                fitting.map(|entry| u64::from(entry.nodes_len)).sum()
            }
            Body::Parts(parts) => {
                let parts = self.parts(*parts);
                parts.map(|part| self.fitting(demand, part)).sum()
            }
        }
    }
}

//! The groups of a family by the shares of CPU and memory that are used: a tree of cells, each with bounds of its nodes'
//! amounts, so that whole cells are left out or counted without a look at their nodes.

use crate::demand::{Bounds, Demand};
use crate::group::Group;

/// Groups of a cell at which it is divided.
const GROUPS_MAX: usize = 24;
/// Cells that a cell is divided into: 4 by 4.
const PARTS: usize = 16;
/// Times that cells are divided.
const LEVEL_MAX: u32 = 7;
/// No cell.
const NONE: u32 = u32::MAX;
/// The cell of all groups.
pub(crate) const ROOT: u32 = 0;

/// What is in a cell.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Groups(Vec<u32>),
    Parts(Box<[u32; PARTS]>),
}

/// A cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Those of its groups, or wider; missing for an empty cell.
    pub(crate) bounds: Option<Bounds>,
    pub(crate) nodes_len: u32,
    level: u32,
    pub(crate) body: Body,
}

/// A tree of cells.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    cells: Vec<Cell>,
    free: Vec<u32>,
}

/// The index of a cell or a group.
pub(crate) fn at(id: u32) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Cell {
    fn new(level: u32) -> Self {
        Self {
            bounds: None,
            nodes_len: 0,
            level,
            body: Body::Groups(Vec::new()),
        }
    }

    fn take_in(&mut self, bounds: &Bounds, nodes_len: u32) {
        match &mut self.bounds {
            Some(mine) => mine.widen(bounds),
            None => self.bounds = Some(*bounds),
        }
        self.nodes_len += nodes_len;
    }
}

/// The part of a cell of a level to which coordinates belong.
fn part((x, y): (u32, u32), level: u32) -> usize {
    let shift = 14 - 2 * level;
    at((((x >> shift) & 3) << 2) | ((y >> shift) & 3))
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            cells: vec![Cell::new(0)],
            free: Vec::new(),
        }
    }

    pub(crate) fn cell(&self, id: u32) -> &Cell {
        &self.cells[at(id)]
    }

    /// The parts of a cell that have nodes.
    pub(crate) fn parts(&self, parts: &[u32; PARTS]) -> impl Iterator<Item = u32> {
        let known = parts.iter().copied().filter(|part| *part != NONE);
        known.filter(|part| self.cells[at(*part)].nodes_len > 0)
    }

    /// Adds a group.
    pub(crate) fn insert(&mut self, groups: &mut [Group], id: u32) {
        let group = &groups[at(id)];
        let (place, bounds, nodes_len) =
            (group.place(), group.bounds(), count(group.members.len()));
        let mut cell = ROOT;
        loop {
            let here = &mut self.cells[at(cell)];
            here.take_in(&bounds, nodes_len);
            match &mut here.body {
                Body::Groups(list) => {
                    groups[at(id)].index = count(list.len());
                    list.push(id);
                    if list.len() > GROUPS_MAX && here.level < LEVEL_MAX {
                        self.divide(groups, cell);
                    }
                    return;
                }
                Body::Parts(_) => cell = self.part_of(cell, place),
            }
        }
    }

    /// The part of a divided cell to which coordinates belong, made if it is not there.
    fn part_of(&mut self, cell: u32, place: (u32, u32)) -> u32 {
        let level = self.cells[at(cell)].level;
        let index = part(place, level);
        if let Body::Parts(parts) = &self.cells[at(cell)].body
            && parts[index] != NONE
        {
            return parts[index];
        }
        let new = Cell::new(level + 1);
        let id = if let Some(id) = self.free.pop() {
            self.cells[at(id)] = new;
            id
        } else {
            self.cells.push(new);
            count(self.cells.len() - 1)
        };
        if let Body::Parts(parts) = &mut self.cells[at(cell)].body {
            parts[index] = id;
        }
        id
    }

    fn divide(&mut self, groups: &mut [Group], cell: u32) {
        let parts = Body::Parts(Box::new([NONE; PARTS]));
        let body = std::mem::replace(&mut self.cells[at(cell)].body, parts);
        let Body::Groups(list) = body else {
            return;
        };
        for id in list {
            let group = &mut groups[at(id)];
            let part = self.part_of(cell, group.place());
            let part = &mut self.cells[at(part)];
            part.take_in(&group.bounds(), count(group.members.len()));
            if let Body::Groups(list) = &mut part.body {
                group.index = count(list.len());
                list.push(id);
            }
        }
    }

    /// Counts nodes that came to a group, or left it and did not leave it empty.
    pub(crate) fn resize(&mut self, place: (u32, u32), comes: bool) {
        let mut cell = ROOT;
        loop {
            let here = &mut self.cells[at(cell)];
            if comes {
                here.nodes_len += 1;
            } else {
                here.nodes_len -= 1;
            }
            match &here.body {
                Body::Groups(_) => return,
                Body::Parts(parts) => cell = parts[part(place, here.level)],
            }
        }
    }

    /// Removes a group of one node.
    pub(crate) fn remove(&mut self, groups: &mut [Group], id: u32) {
        let (place, index) = (groups[at(id)].place(), at(groups[at(id)].index));
        let mut cell = ROOT;
        loop {
            let here = &mut self.cells[at(cell)];
            here.nodes_len -= 1;
            let is_empty = here.nodes_len == 0;
            if is_empty {
                here.bounds = None;
            }
            match &mut here.body {
                Body::Groups(list) => {
                    list.swap_remove(index);
                    if let Some(moved) = list.get(index) {
                        groups[at(*moved)].index = count(index);
                    }
                    return;
                }
                Body::Parts(_) if is_empty => return self.clear(cell),
                Body::Parts(parts) => cell = parts[part(place, here.level)],
            }
        }
    }

    /// Makes an empty cell one that is not divided.
    fn clear(&mut self, cell: u32) {
        let body = Body::Groups(Vec::new());
        let body = std::mem::replace(&mut self.cells[at(cell)].body, body);
        if let Body::Parts(parts) = body {
            for part in parts.into_iter().filter(|part| *part != NONE) {
                self.clear(part);
                self.free.push(part);
            }
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
                    let mut parts = self.parts(parts);
                    cell = parts.find(|part| !passes(u64::from(self.cell(*part).nodes_len)))?;
                }
                Body::Groups(list) => {
                    let slots = list.iter().map(|id| groups[at(*id)].members.as_slice());
                    let slots = slots.into_iter().find(|slots| {
                        let len = u64::from(count(slots.len()));
                        !passes(len)
                    })?;
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
                let mut parts = self.parts(parts);
                parts.any(|part| self.any(groups, part, passes))
            }
            Body::Groups(list) => {
                let mut slots = list
                    .iter()
                    .flat_map(|id| groups[at(*id)].members.as_slice());
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
    pub(crate) fn fitting(&self, groups: &[Group], demand: &Demand, cell: u32) -> u64 {
        let cell = self.cell(cell);
        let Some(range) = cell.bounds.as_ref().and_then(|all| demand.range(all)) else {
            return 0;
        };
        if range.fits_all {
            return u64::from(cell.nodes_len);
        }
        match &cell.body {
            Body::Groups(list) => {
                let groups = list.iter().map(|id| &groups[at(*id)]);
                let fitting = groups.filter(|group| demand.fits(&group.state));
                fitting
                    .map(|group| u64::from(count(group.members.len())))
                    .sum()
            }
            Body::Parts(parts) => {
                let parts = self.parts(parts);
                parts.map(|part| self.fitting(groups, demand, part)).sum()
            }
        }
    }
}

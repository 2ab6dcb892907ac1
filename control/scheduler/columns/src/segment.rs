//! Nodes that are neighbours in the order of nodes, by their families and amounts.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

use crate::demand::Demand;
use crate::group::{Group, Members};
use crate::number::{at, count, wide};
use crate::state::State;
use crate::tree::{ROOT, Tree};

/// Changes of groups that are known.
const CHANGES: usize = 8;

/// Where a node is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In no segment.
    Nowhere,
    /// Among the nodes with amounts that are not comparable, at an index.
    Odd(u32),
    /// In a group, at an index.
    Group(u32, u32),
}

/// Nodes with the same traits and nearly the same allocatable amounts.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) kind: u32,
    pub(crate) tree: Tree,
}

/// A node that has another index now.
pub(crate) struct Moved {
    pub(crate) slot: u32,
    pub(crate) place: Place,
}

/// The last groups that came or went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    last: [u32; CHANGES],
    /// The number of all changes so far.
    pub(crate) len: u64,
}

impl Changes {
    fn note(&mut self, group: u32) {
        self.last[place(self.len)] = group;
        self.len += 1;
    }

    /// The groups that came or went since there were so many changes; `None` if not all of them are known.
    pub(crate) fn since(&self, seen: u64) -> Option<impl Iterator<Item = u32>> {
        let new = self.len.checked_sub(seen)?;
        (new <= wide(CHANGES)).then(|| (seen..self.len).map(|change| self.last[place(change)]))
    }
}

/// Where a change is kept.
fn place(change: u64) -> usize {
    usize::try_from(change % wide(CHANGES)).unwrap_or(0)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) families: Vec<Family>,
    by_key: HashMap<(u32, u32, u32), u32, FixedState>,
    pub(crate) groups: Vec<Group>,
    /// The one that a node joined last.
    last: u32,
    free: Vec<u32>,
    by_state: HashTable<u32>,
    /// Nodes with amounts that are not comparable.
    pub(crate) odd: Vec<u32>,
    pub(crate) changes: Changes,
}

fn hash(family: u32, state: &State) -> u64 {
    FixedState::default().hash_one((family, state.bits()))
}

/// An amount without all but its largest bits.
fn magnitude(amount: f64) -> u32 {
    // The exponent and the first three binary places.
    u32::try_from(amount.to_bits() >> 49).unwrap_or(u32::MAX)
}

impl Segment {
    /// Adds a node. Nodes without comparable amounts have no state.
    pub(crate) fn insert(&mut self, slot: u32, kind: u32, state: Option<&State>) -> Place {
        let Some(state) = state else {
            self.odd.push(slot);
            return Place::Odd(count(self.odd.len() - 1));
        };
        if let Some(group) = self.last_group(kind, state) {
            return self.join(group, slot);
        }
        let family = self.family(kind, state);
        let groups = &self.groups;
        let is_same = |group: &u32| {
            let group = &groups[at(*group)];
            group.family == family && group.state.is_same(state)
        };
        let hash_of_new = hash(family, state);
        if let Some(&known) = self.by_state.find(hash_of_new, is_same) {
            return self.join(known, slot);
        }
        let group = Group {
            family,
            state: *state,
            members: Members::One(slot),
            index: 0,
        };
        let new = self.free.pop().unwrap_or(count(self.groups.len()));
        if at(new) == self.groups.len() {
            self.groups.push(group);
        } else {
            self.groups[at(new)] = group;
        }
        let groups = &self.groups;
        let rehash = |other: &u32| {
            let group = &groups[at(*other)];
            hash(group.family, &group.state)
        };
        self.by_state.insert_unique(hash_of_new, new, rehash);
        self.families[at(family)].tree.insert(&mut self.groups, new);
        self.changes.note(new);
        Place::Group(new, 0)
    }

    /// The group that a node joined last, if a node of this kind and these amounts belongs to it, too: nodes of equal pods often
    /// move from one group to one other.
    fn last_group(&self, kind: u32, state: &State) -> Option<u32> {
        let group = self.groups.get(at(self.last))?;
        let is_same = group.members.len() > 0
            && self.families[at(group.family)].kind == kind
            && group.state.is_same(state);
        is_same.then_some(self.last)
    }

    /// Adds a node to a group that has others.
    fn join(&mut self, id: u32, slot: u32) -> Place {
        self.last = id;
        let group = &mut self.groups[at(id)];
        let index = group.members.push(slot);
        let place = (group.place(), group.index);
        self.families[at(group.family)].tree.resize(place, true);
        Place::Group(id, count(index))
    }

    fn family(&mut self, kind: u32, state: &State) -> u32 {
        let key = (kind, magnitude(state.cpu), magnitude(state.memory));
        let new = count(self.families.len());
        let known = *self.by_key.entry(key).or_insert(new);
        if known == new {
            let tree = Tree::new();
            self.families.push(Family { kind, tree });
        }
        known
    }

    /// Removes a node; the node that has its index then.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Moved> {
        match place {
            Place::Nowhere => None,
            Place::Odd(index) => {
                self.odd.swap_remove(at(index));
                let slot = *self.odd.get(at(index))?;
                Some(Moved { slot, place })
            }
            Place::Group(group, index) => {
                let slot = self.remove_member(group, at(index))?;
                Some(Moved { slot, place })
            }
        }
    }

    fn remove_member(&mut self, id: u32, index: usize) -> Option<u32> {
        let group = &mut self.groups[at(id)];
        let (family, place) = (at(group.family), group.place());
        if group.members.len() > 1 {
            self.families[family]
                .tree
                .resize((place, group.index), false);
            return group.members.swap_remove(index);
        }
        let hash = hash(group.family, &group.state);
        if let Ok(entry) = self.by_state.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.families[family].tree.remove(&mut self.groups, id);
        self.groups[at(id)].members = Members::none();
        self.changes.note(id);
        self.free.push(id);
        None
    }

    /// The number of comparable nodes of each family that the demand fits on.
    pub(crate) fn fitting(&self, demand: &Demand) -> impl Iterator<Item = (u32, u64)> {
        let all = self.families.iter();
        all.map(|family| {
            let fitting = family.tree.fitting(demand, ROOT);
            (family.kind, fitting)
        })
    }
}

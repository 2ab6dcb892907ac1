//! Upper 96 bits of backends' addresses: shared by rows, with a reference count each.

use std::collections::HashMap;

use dormouse_ebpf::maps::PREFIXES_MAX;

use crate::arrays::Arrays;
use crate::grace::Moment;
use crate::ids::Ids;

type Upper = [u8; 12];

/// The prefixes in use.
#[derive(Debug)]
pub(super) struct Prefixes {
    known: HashMap<Upper, u32>,
    /// Reference counts.
    uses: Vec<u32>,
    ids: Ids,
    /// The last result: the next backend is often on the same node.
    last: Option<(Upper, u32)>,
}

impl Prefixes {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            uses: Vec::new(),
            ids: Ids::new(PREFIXES_MAX),
            last: None,
        }
    }

    /// Counts a row that was found in use.
    pub(super) fn mark(&mut self, arrays: &Arrays, id: u32) {
        if self.ids.mark(id)
            && let Some(upper) = arrays.prefix(id)
        {
            self.known.insert(upper, id);
        }
        self.count(id);
    }

    /// The id of a prefix, with its count increased; writes a new prefix.
    pub(super) fn uses(&mut self, arrays: &Arrays, upper: Upper, now: Moment) -> Option<u32> {
        let last = self.last.filter(|(last, _)| *last == upper);
        let known = last
            .map(|(_, id)| id)
            .or_else(|| self.known.get(&upper).copied());
        let id = match known {
            Some(id) => id,
            None => self.add(arrays, upper, now)?,
        };
        self.last = Some((upper, id));
        self.count(id);
        Some(id)
    }

    fn add(&mut self, arrays: &Arrays, upper: Upper, now: Moment) -> Option<u32> {
        let id = self.ids.take(now)?;
        arrays.write_prefix(id, upper);
        self.known.insert(upper, id);
        Some(id)
    }

    /// Decreases the count.
    pub(super) fn leaves(&mut self, arrays: &Arrays, id: u32, now: Moment) {
        if self.was_last(arrays, id) {
            self.ids.release(id, now);
        }
    }

    /// Decreases the count for a row that no program has seen.
    pub(super) fn undo(&mut self, arrays: &Arrays, id: u32) {
        if self.was_last(arrays, id) {
            self.ids.undo(id);
        }
    }

    fn was_last(&mut self, arrays: &Arrays, id: u32) -> bool {
        let Some(uses) = self.uses.get_mut(id as usize) else {
            return false;
        };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return false;
        }
        if let Some(upper) = arrays.prefix(id) {
            self.known.remove(&upper);
        }
        self.last = None;
        true
    }

    fn count(&mut self, id: u32) {
        let place = id as usize;
        if self.uses.len() <= place {
            self.uses.resize(place + 1, 0);
        }
        self.uses[place] += 1;
    }

    pub(super) fn used(&self) -> u32 {
        self.ids.used()
    }

    pub(super) fn has_quarantined(&self) -> bool {
        self.ids.has_quarantined()
    }
}

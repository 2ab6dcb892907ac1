//! Forgets rules that no pod on a node has, and counters without pods, once there are as many of them as of the others.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::{Counters, address};
use crate::number::count;

/// Rules and counters that are kept without pods, beyond one for each with pods.
const SPARE: usize = if cfg!(test) { 1 << 6 } else { 1 << 13 };

/// The numbers of rules that are known no more.
pub(crate) type Gone = HashSet<u32, FixedState>;

impl Counters {
    /// Whether enough can be forgotten.
    pub(crate) fn is_full(&self) -> bool {
        let (rules, counters) = self.kept;
        let rules_len = self.known.len() - self.free.len();
        rules_len > rules * 2 + SPARE || self.all.len() > counters * 2 + SPARE
    }

    /// Forgets the rules of which no pod is on a node, whose numbers are returned, and the counters without pods. Other counters get
    /// other numbers: what refers to them is to be forgotten as well.
    pub(crate) fn forget(&mut self) -> Gone {
        let mut gone = Gone::default();
        for (number, slot) in self.known.iter_mut().enumerate() {
            let Some(known) = slot else {
                continue;
            };
            (known.counters, known.seen_len) = (Vec::new(), 0);
            if known.pods_len == 0 {
                let rules = known.example.rules();
                self.by_address.remove(&address(rules));
                self.by_rules.remove(rules);
                gone.insert(count(number));
                *slot = None;
            }
        }
        self.free.extend(gone.iter().copied());
        self.last = Default::default();
        let all = std::mem::take(&mut self.all);
        self.all = all
            .into_iter()
            .filter(|one| !one.by_node.is_empty())
            .collect();
        let numbers = self.all.iter().enumerate();
        let numbers = numbers.map(|(number, one)| (one.census.clone(), count(number)));
        self.ids = numbers.collect();
        self.kept = (self.known.len() - self.free.len(), self.all.len());
        gone
    }

    /// The number of known rules.
    #[cfg(test)]
    pub(crate) fn known_len(&self) -> usize {
        self.known.len() - self.free.len()
    }

    /// The names of the images of all known rules.
    pub(crate) fn images(&self) -> BTreeSet<&str> {
        let known = self.known.iter().flatten();
        known.flat_map(|known| known.example.images()).collect()
    }
}

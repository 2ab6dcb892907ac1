//! The classes that an engine knows: made when a pod of them is seen first, and brought up to date before a decision.

use dormouse_scheduler_decide::Pod;

use super::Engine;
use crate::class::{Class, Source, Spread};
use crate::index::Index;

/// Classes that are kept; beyond, all are forgotten.
const CLASSES_MAX: usize = 1 << 14;
/// Kinds of nodes that are kept of all classes together, some 50 bytes each; beyond, all classes are forgotten.
const CELLS_MAX: usize = if cfg!(test) { 1 << 11 } else { 1 << 22 };

impl Engine {
    /// Forgets what is known for pods that are gone, once that is enough. Classes refer to counters, which have other numbers then.
    pub(super) fn forget_gone(&mut self) {
        if self.index.counters.is_full() {
            let gone = self.index.forget(&self.cluster);
            self.classes.clear();
            self.runs.forget();
            self.failures.forget(&gone);
            self.ledger.forget(&gone);
        }
    }

    /// Makes room for one more class.
    fn bound_classes(&mut self) {
        let cells = (self.classes.len() + 1).saturating_mul(self.index.kinds.len());
        if self.classes.len() >= CLASSES_MAX || cells > CELLS_MAX {
            self.classes.clear();
        }
    }

    /// The class of a pod, with all that is known now.
    pub(super) fn prepare(&mut self, profile: usize, rules: u32, pod: &Pod) -> Option<()> {
        let key = (rules, profile);
        let (scheduler, weights) = &self.profiles[profile];
        let weights = (*weights)?;
        let source = Source {
            profile: scheduler.profile(),
            weights: &weights,
            snapshot: &self.cluster,
            pod,
        };
        let revision = self.cluster.selectors_revision();
        let known = self.classes.get(&key);
        if known.is_none_or(|class| class.selectors_revision != revision) {
            let class = make(source, &mut self.index);
            self.bound_classes();
            self.classes.insert(key, class);
        }
        self.forget_kinds();
        let (scheduler, _) = &self.profiles[profile];
        let source = Source {
            profile: scheduler.profile(),
            weights: &weights,
            snapshot: &self.cluster,
            pod,
        };
        let class = self.classes.get_mut(&key)?;
        class.catch_up(source, &self.index.counters, &self.index.kinds);
        Some(())
    }
}

/// A class that is seen for the first time.
fn make(source: Source<'_>, index: &mut Index) -> Class {
    let (reads, terms) = source.reads();
    let mut class = Class::new(reads.is_special, source);
    if !class.is_special {
        index.read(source.snapshot, &reads);
        let counter = |index: &mut Index, census| {
            let rows = &index.rows;
            let kind = |slot: u32| rows[crate::number::at(slot)].kind;
            index.counters.counter(census, source.snapshot, kind)
        };
        for term in terms {
            let counter = counter(index, term.census.clone());
            class.spread.push(Spread::new(term, counter));
        }
        for census in source.repelling() {
            let id = counter(index, census);
            class.repelled_by.push(id);
        }
        index.read_terms(source.snapshot);
    }
    class
}

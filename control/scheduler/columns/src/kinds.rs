//! Kinds of nodes: those with equal traits, as far as any class of pods reads them.

use std::collections::BTreeSet;

use dormouse_scheduler_decide::facts::{NodeView, Reads, Specimen, Traits};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::number::{at, count};

/// The kinds of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    keys: BTreeSet<String>,
    images: BTreeSet<String>,
    ids: HashMap<Traits, u32, FixedState>,
    specimens: Vec<Specimen>,
    has_hostname: Vec<bool>,
}

impl Kinds {
    pub(crate) fn len(&self) -> usize {
        self.specimens.len()
    }

    /// Reads more of nodes from now on; whether that is new, and the kinds of all nodes must be recomputed.
    pub(crate) fn read(&mut self, reads: &Reads) -> bool {
        let is_new = !reads.keys.is_subset(&self.keys) || !reads.images.is_subset(&self.images);
        if is_new {
            self.keys.extend(reads.keys.iter().cloned());
            self.images.extend(reads.images.iter().cloned());
        }
        is_new
    }

    /// Forgets all kinds, not what is read.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.specimens.clear();
        self.has_hostname.clear();
    }

    /// The kind of a node.
    pub(crate) fn of(&mut self, node: NodeView<'_>) -> u32 {
        let traits = node.traits(&self.keys, &self.images);
        let new = count(self.specimens.len());
        let kind = *self.ids.entry(traits).or_insert(new);
        if kind == new {
            self.specimens.push(node.specimen());
            self.has_hostname
                .push(node.label("kubernetes.io/hostname").is_some());
        }
        kind
    }

    /// A node of a kind.
    pub(crate) fn specimen(&self, kind: u32) -> NodeView<'_> {
        self.specimens[at(kind)].view()
    }

    /// Whether nodes of a kind have the label of their host name.
    pub(crate) fn has_hostname(&self, kind: u32) -> bool {
        self.has_hostname[at(kind)]
    }

    /// The value of a label of all nodes of a kind.
    pub(crate) fn label(&self, kind: u32, key: &str) -> Option<&str> {
        self.specimen(kind).label(key)
    }

    /// All kinds.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        0..count(self.specimens.len())
    }
}

//! Kinds of nodes: those with equal traits, as far as any class of pods reads them.

use std::collections::BTreeSet;

use dormouse_scheduler_decide::facts::{NodeView, Specimen, Traits};
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

    /// Reads more labels of nodes from now on; whether that is new, and the kinds of all nodes must be recomputed.
    pub(crate) fn read_keys(&mut self, keys: &BTreeSet<String>) -> bool {
        let is_new = !keys.is_subset(&self.keys);
        if is_new {
            self.keys.extend(keys.iter().cloned());
        }
        is_new
    }

    /// Reads more images of nodes from now on; those that are new, by which the nodes that report them can be of other kinds.
    pub(crate) fn read_images(&mut self, images: &BTreeSet<String>) -> BTreeSet<String> {
        let new: BTreeSet<_> = images.difference(&self.images).cloned().collect();
        self.images.extend(new.iter().cloned());
        new
    }

    /// Reads no other images than these from now on; the others.
    pub(crate) fn retain_images(&mut self, images: &BTreeSet<&str>) -> BTreeSet<String> {
        let all = std::mem::take(&mut self.images).into_iter();
        let (kept, gone) = all.partition(|name| images.contains(name.as_str()));
        self.images = kept;
        gone
    }

    /// The number of images that are read.
    #[cfg(test)]
    pub(crate) fn images_len(&self) -> usize {
        self.images.len()
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
            self.specimens.push(node.specimen(&self.images));
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

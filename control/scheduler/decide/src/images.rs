//! Images of the cluster: one size each, and the nodes that have them.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::Node;

/// An image as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ImageState {
    /// Bytes, as the first node with the image reported.
    pub(crate) size: i64,
    /// The number of nodes with the image when the node last changed.
    pub(crate) nodes_len: usize,
}

/// The images of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(BTreeMap<String, (i64, BTreeSet<String>)>);

impl Images {
    pub(crate) fn add(&mut self, node: &Node) {
        for image in &node.images {
            for name in &image.names {
                let (_, nodes) = self
                    .0
                    .entry(name.clone())
                    .or_insert_with(|| (image.size, BTreeSet::new()));
                nodes.insert(node.name.clone());
            }
        }
    }

    /// An image that is on no node any more is forgotten, with its size.
    pub(crate) fn remove(&mut self, node: &Node) {
        for name in node.images.iter().flat_map(|image| &image.names) {
            if let Some((_, nodes)) = self.0.get_mut(name) {
                nodes.remove(&node.name);
                if nodes.is_empty() {
                    self.0.remove(name);
                }
            }
        }
    }

    /// The images of a node as they are now.
    pub(crate) fn of(&self, node: &Node) -> BTreeMap<String, ImageState> {
        let names = node.images.iter().flat_map(|image| &image.names);
        let known = names.filter_map(|name| {
            let (size, nodes) = self.0.get(name)?;
            let state = ImageState {
                size: *size,
                nodes_len: nodes.len(),
            };
            Some((name.clone(), state))
        });
        known.collect()
    }
}

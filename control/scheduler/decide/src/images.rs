//! Images of the cluster: one size each, and the nodes that have them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// An image as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageState {
    /// Bytes, as the first node with the image reported.
    pub(crate) size: i64,
    /// The number of nodes with the image when the node last changed.
    pub(crate) nodes_len: usize,
}

/// The images of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// The bytes of each image, and its nodes.
    nodes: BTreeMap<String, (i64, BTreeSet<String>)>,
    /// For a part of a cluster: the images of all parts, in place of its own.
    cluster: Option<BTreeMap<String, ImageState>>,
}

/// Counts the images of a cluster whose nodes are in several parts.
#[derive(Clone, Debug, Default)]
pub struct ImageCensus {
    images: Images,
    changed: BTreeSet<String>,
}

impl ImageCensus {
    /// Adds a node, or replaces the old one.
    pub fn set_node(&mut self, old: Option<&Node>, node: &Node) {
        if let Some(old) = old {
            self.remove_node(old);
        }
        self.images.add(node);
        self.change(node);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, node: &Node) {
        self.images.remove(node);
        self.change(node);
    }

    fn change(&mut self, node: &Node) {
        let names = node.images.iter().flat_map(|image| &image.names);
        self.changed.extend(names.cloned());
    }

    /// The images that may have changed since the last call, for [`crate::Snapshot::set_cluster_image`].
    pub fn changes(&mut self) -> Vec<(String, Option<ImageState>)> {
        let changed = std::mem::take(&mut self.changed);
        let known = changed.into_iter();
        known
            .map(|name| {
                let image = self.images.image(&name);
                (name, image)
            })
            .collect()
    }

    /// All images.
    pub fn all(&self) -> impl Iterator<Item = (&str, ImageState)> {
        let names = self.images.nodes.keys();
        names.filter_map(|name| Some((name.as_str(), self.images.image(name)?)))
    }
}

impl Images {
    pub(crate) fn add(&mut self, node: &Node) {
        for image in &node.images {
            for name in &image.names {
                let (_, nodes) = self
                    .nodes
                    .entry(name.clone())
                    .or_insert_with(|| (image.size, BTreeSet::new()));
                nodes.insert(node.name.to_string());
            }
        }
    }

    /// An image that is on no node any more is forgotten, with its size.
    pub(crate) fn remove(&mut self, node: &Node) {
        for name in node.images.iter().flat_map(|image| &image.names) {
            if let Some((_, nodes)) = self.nodes.get_mut(name) {
                nodes.remove(&*node.name);
                if nodes.is_empty() {
                    self.nodes.remove(name);
                }
            }
        }
    }

    /// Sets an image of all parts, which then stand in place of this part's own.
    pub(crate) fn set_cluster(&mut self, name: &str, image: Option<ImageState>) {
        let all = self.cluster.get_or_insert_default();
        match image {
            Some(image) => _ = all.insert(name.to_owned(), image),
            None => _ = all.remove(name),
        }
    }

    /// The names of the nodes that report an image.
    pub(crate) fn nodes_of(&self, name: &str) -> impl Iterator<Item = &str> {
        let known = self.nodes.get(name).into_iter();
        known.flat_map(|(_, nodes)| nodes.iter().map(String::as_str))
    }

    fn image(&self, name: &str) -> Option<ImageState> {
        let (size, nodes) = self.nodes.get(name)?;
        Some(ImageState {
            size: *size,
            nodes_len: nodes.len(),
        })
    }

    /// The images of a node as they are now.
    pub(crate) fn of(&self, node: &Node) -> BTreeMap<String, ImageState> {
        let names = node.images.iter().flat_map(|image| &image.names);
        let state = |name: &String| match &self.cluster {
            Some(all) => all.get(name).copied(),
            None => self.image(name),
        };
        names
            .filter_map(|name| Some((name.clone(), state(name)?)))
            .collect()
    }
}

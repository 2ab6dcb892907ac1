//! Changes of the cluster's objects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{Key, app::StoredApp};

/// The new state of one object, `None` if it was deleted, or a step of a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An app.
    App(Key, Option<Box<StoredApp>>),
    /// A pod.
    Pod(Key, Option<Arc<Pod>>),
    /// A node.
    Node(Key, Option<Arc<Node>>),
    /// A list of all objects begins.
    Listing,
    /// The list is complete: apps that were not in it no longer exist. For pods and nodes there were deletions in it.
    Listed,
}

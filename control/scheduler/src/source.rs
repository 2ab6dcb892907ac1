//! The sources of the cluster's state: the store, or a Kubernetes API server.

pub mod store;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_cluster::{Change, Key};
use k8s_openapi::api::core::v1::{Namespace, Service};
use tokio::sync::mpsc;

/// Batches queued for the scheduler; a full queue blocks the watches.
const BATCHES_MAX: usize = 16;

/// An object, other than a node or a pod, by which plugins decide; `None` if it was deleted.
#[derive(Clone, Debug)]
pub enum Related {
    /// A namespace, whose labels selectors of affinity terms read.
    Namespace(Key, Option<Arc<Namespace>>),
    /// A Service, whose pods are spread by default.
    Service(Key, Option<Arc<Service>>),
}

/// What a source delivers.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A change of a node or a pod.
    Change(Change),
    /// A change of another object.
    Related(Related),
    /// The objects of a kind were all delivered.
    Listed(&'static str),
}

/// A source.
#[derive(Debug)]
pub struct Source {
    /// What it delivers, in order for each kind.
    pub seen: mpsc::Receiver<Vec<Seen>>,
    /// The kinds that it lists before decisions may be made.
    pub kinds: BTreeSet<&'static str>,
}

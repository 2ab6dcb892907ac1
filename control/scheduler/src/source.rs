//! The sources of the cluster's state: the store, or a Kubernetes API server.

pub mod kubernetes;
pub mod store;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_cluster::{Change, Key};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use tokio::sync::mpsc;

/// Batches queued for the scheduler; a full queue blocks the watches.
const BATCHES_MAX: usize = 16;

/// An object, other than a node or a pod, by which plugins decide; `None` if it was deleted.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Related {
    Namespace(Key, Option<Arc<Namespace>>),
    Service(Key, Option<Arc<Service>>),
    ReplicationController(Key, Option<Arc<ReplicationController>>),
    ReplicaSet(Key, Option<Arc<ReplicaSet>>),
    StatefulSet(Key, Option<Arc<StatefulSet>>),
    PodDisruptionBudget(Key, Option<Arc<PodDisruptionBudget>>),
    PersistentVolume(Key, Option<Arc<PersistentVolume>>),
    PersistentVolumeClaim(Key, Option<Arc<PersistentVolumeClaim>>),
    StorageClass(Key, Option<Arc<StorageClass>>),
    CSINode(Key, Option<Arc<CSINode>>),
    CSIDriver(Key, Option<Arc<CSIDriver>>),
    CSIStorageCapacity(Key, Option<Arc<CSIStorageCapacity>>),
    VolumeAttachment(Key, Option<Arc<VolumeAttachment>>),
}

/// What a source delivers.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A change of a node or a pod.
    Change(Change),
    /// A change of another object.
    Related(Related),
    /// A pod that is about to be created.
    Announced(Arc<Pod>),
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

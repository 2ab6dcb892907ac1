//! Changes of the cluster, as the leader hands them to shards.

use dormouse_scheduler_decide::{ImageState, Malformed, Node, Pod, PodKey, Snapshot};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node as ApiNode, PersistentVolume, PersistentVolumeClaim, Pod as ApiPod,
    ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use serde::{Deserialize, Serialize};

use crate::object::Object;

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// The shard discards its nodes and pods: all of them follow.
    Reset,
    /// A node of the shard.
    Node(Object<ApiNode>),
    /// A node is no longer one of the shard.
    NodeGone(String),
    /// A pod that is bound or nominated to a node of the shard. It confirms a claim.
    Pod(Object<ApiPod>),
    /// A pod is no longer on a node of the shard.
    PodGone(PodKey),
    /// The claim of an attempt, if there is one, has no effect.
    Release(u64),
    /// An image of the cluster; `None` if no node has it.
    Image(String, Option<ImageState>),
    /// An object that all shards have.
    Thing(Thing),
    /// Such an object is gone: its kind, namespace and name.
    ThingGone(Kind, String, String),
}

/// An object that plugins look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Thing {
    Namespace(Object<Namespace>),
    Budget(Object<PodDisruptionBudget>),
    Service(Object<Service>),
    ReplicationController(Object<ReplicationController>),
    ReplicaSet(Object<ReplicaSet>),
    StatefulSet(Object<StatefulSet>),
    Claim(Object<PersistentVolumeClaim>),
    Volume(Object<PersistentVolume>),
    StorageClass(Object<StorageClass>),
    CsiNode(Object<CSINode>),
    Attachment(Object<VolumeAttachment>),
    CsiDriver(Object<CSIDriver>),
    Capacity(Object<CSIStorageCapacity>),
}

/// The kind of such an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Kind {
    Namespace,
    Budget,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    Claim,
    Volume,
    StorageClass,
    CsiNode,
    Attachment,
    CsiDriver,
    Capacity,
}

impl Thing {
    /// The kind, the namespace and the name.
    pub fn key(&self) -> (Kind, String, String) {
        let (kind, meta) = match self {
            Self::Namespace(one) => (Kind::Namespace, &one.metadata),
            Self::Budget(one) => (Kind::Budget, &one.metadata),
            Self::Service(one) => (Kind::Service, &one.metadata),
            Self::ReplicationController(one) => (Kind::ReplicationController, &one.metadata),
            Self::ReplicaSet(one) => (Kind::ReplicaSet, &one.metadata),
            Self::StatefulSet(one) => (Kind::StatefulSet, &one.metadata),
            Self::Claim(one) => (Kind::Claim, &one.metadata),
            Self::Volume(one) => (Kind::Volume, &one.metadata),
            Self::StorageClass(one) => (Kind::StorageClass, &one.metadata),
            Self::CsiNode(one) => (Kind::CsiNode, &one.metadata),
            Self::Attachment(one) => (Kind::Attachment, &one.metadata),
            Self::CsiDriver(one) => (Kind::CsiDriver, &one.metadata),
            Self::Capacity(one) => (Kind::Capacity, &one.metadata),
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        (kind, text(&meta.namespace), text(&meta.name))
    }

    /// Sets the object. One that is malformed is refused.
    pub fn set(&self, snapshot: &mut Snapshot) -> Result<(), Malformed> {
        match self {
            Self::Namespace(one) => snapshot.set_namespace(one),
            Self::Budget(one) => snapshot.set_budget(one),
            Self::Service(one) => snapshot.set_service(one),
            Self::ReplicationController(one) => snapshot.set_replication_controller(one),
            Self::ReplicaSet(one) => snapshot.set_replica_set(one),
            Self::StatefulSet(one) => snapshot.set_stateful_set(one),
            Self::Claim(one) => snapshot.set_claim(one)?,
            Self::Volume(one) => snapshot.set_volume(one)?,
            Self::StorageClass(one) => snapshot.set_storage_class(one)?,
            Self::CsiNode(one) => snapshot.set_csi_node(one)?,
            Self::Attachment(one) => snapshot.set_attachment(one),
            Self::CsiDriver(one) => snapshot.set_csi_driver(one),
            Self::Capacity(one) => snapshot.set_capacity(one)?,
        }
        Ok(())
    }
}

impl Kind {
    /// Removes an object.
    pub fn remove(self, snapshot: &mut Snapshot, namespace: &str, name: &str) {
        match self {
            Self::Namespace => snapshot.remove_namespace(name),
            Self::Budget => snapshot.remove_budget(namespace, name),
            Self::Service => snapshot.remove_service(namespace, name),
            Self::ReplicationController => snapshot.remove_replication_controller(namespace, name),
            Self::ReplicaSet => snapshot.remove_replica_set(namespace, name),
            Self::StatefulSet => snapshot.remove_stateful_set(namespace, name),
            Self::Claim => snapshot.remove_claim(namespace, name),
            Self::Volume => snapshot.remove_volume(name),
            Self::StorageClass => snapshot.remove_storage_class(name),
            Self::CsiNode => snapshot.remove_csi_node(name),
            Self::Attachment => snapshot.remove_attachment(name),
            Self::CsiDriver => snapshot.remove_csi_driver(name),
            Self::Capacity => snapshot.remove_capacity(namespace, name),
        }
    }
}

impl Change {
    /// Applies the change. A malformed object, which the leader refuses before, changes nothing.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot) -> Result<(), Malformed> {
        match self {
            Self::Reset => *snapshot = Snapshot::default(),
            Self::Node(node) => snapshot.set_node(Node::parse(node)?),
            Self::NodeGone(name) => snapshot.remove_node(name),
            Self::Pod(pod) => snapshot.set_pod(Pod::parse(pod)?),
            Self::PodGone(key) => snapshot.remove_pod(key),
            Self::Release(_) => {}
            Self::Image(name, image) => snapshot.set_cluster_image(name, *image),
            Self::Thing(thing) => thing.set(snapshot)?,
            Self::ThingGone(kind, namespace, name) => kind.remove(snapshot, namespace, name),
        }
        Ok(())
    }
}

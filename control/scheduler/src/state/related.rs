//! Changes of the objects that plugins look up.

use dormouse_cluster::Key;
use dormouse_scheduler_decide::queue::{VolumeChange, VolumeKind};
use dormouse_scheduler_decide::{Malformed, Snapshot};
use k8s_openapi::jiff::Timestamp;

use super::State;
use crate::queue::Happened;
use crate::source::Related;

impl State {
    /// Applies a change of an object other than a node or a pod. One that cannot be read keeps its former state.
    pub fn apply_related(&mut self, now: Timestamp, related: &Related) {
        if let Err((key, error)) = apply(self.engine.cluster(), related) {
            tracing::warn!(object = %key, %error, "an object cannot be read: decisions do not see the change");
            return;
        }
        let Some((kind, key, exists)) = of_volumes(related) else {
            return;
        };
        let name = (kind, key.clone());
        let change = match exists {
            false => {
                self.volumes.remove(&name);
                VolumeChange::Deleted
            }
            true if self.volumes.insert(name) => VolumeChange::Added,
            true => VolumeChange::Updated,
        };
        let namespace = key.namespace.clone();
        let happened = Happened::Volume {
            kind,
            namespace,
            change,
        };
        self.wake(now, happened);
    }
}

fn apply<'a>(cluster: &mut Snapshot, related: &'a Related) -> Result<(), (&'a Key, Malformed)> {
    let read = |(key, done): (&'a Key, Result<(), Malformed>)| done.map_err(|error| (key, error));
    match related {
        Related::Namespace(_, Some(object)) => cluster.set_namespace(object),
        Related::Namespace(key, None) => cluster.remove_namespace(&key.name),
        Related::Service(_, Some(object)) => cluster.set_service(object),
        Related::Service(key, None) => cluster.remove_service(&key.namespace, &key.name),
        Related::ReplicationController(_, Some(object)) => {
            cluster.set_replication_controller(object);
        }
        Related::ReplicationController(key, None) => {
            cluster.remove_replication_controller(&key.namespace, &key.name);
        }
        Related::ReplicaSet(_, Some(object)) => cluster.set_replica_set(object),
        Related::ReplicaSet(key, None) => cluster.remove_replica_set(&key.namespace, &key.name),
        Related::StatefulSet(_, Some(object)) => cluster.set_stateful_set(object),
        Related::StatefulSet(key, None) => cluster.remove_stateful_set(&key.namespace, &key.name),
        Related::PodDisruptionBudget(_, Some(object)) => cluster.set_budget(object),
        Related::PodDisruptionBudget(key, None) => cluster.remove_budget(&key.namespace, &key.name),
        Related::PersistentVolume(key, Some(object)) => {
            return read((key, cluster.set_volume(object)));
        }
        Related::PersistentVolume(key, None) => cluster.remove_volume(&key.name),
        Related::PersistentVolumeClaim(key, Some(object)) => {
            return read((key, cluster.set_claim(object)));
        }
        Related::PersistentVolumeClaim(key, None) => {
            cluster.remove_claim(&key.namespace, &key.name);
        }
        Related::StorageClass(key, Some(object)) => {
            return read((key, cluster.set_storage_class(object)));
        }
        Related::StorageClass(key, None) => cluster.remove_storage_class(&key.name),
        Related::CSINode(key, Some(object)) => return read((key, cluster.set_csi_node(object))),
        Related::CSINode(key, None) => cluster.remove_csi_node(&key.name),
        Related::CSIDriver(_, Some(object)) => cluster.set_csi_driver(object),
        Related::CSIDriver(key, None) => cluster.remove_csi_driver(&key.name),
        Related::CSIStorageCapacity(key, Some(object)) => {
            return read((key, cluster.set_capacity(object)));
        }
        Related::CSIStorageCapacity(key, None) => {
            cluster.remove_capacity(&key.namespace, &key.name);
        }
        Related::VolumeAttachment(_, Some(object)) => cluster.set_attachment(object),
        Related::VolumeAttachment(key, None) => cluster.remove_attachment(&key.name),
    }
    Ok(())
}

/// The kind and name of an object by which volumes are bound and attached, and whether it exists.
fn of_volumes(related: &Related) -> Option<(VolumeKind, &Key, bool)> {
    Some(match related {
        Related::PersistentVolume(key, object) => {
            (VolumeKind::PersistentVolume, key, object.is_some())
        }
        Related::PersistentVolumeClaim(key, object) => {
            (VolumeKind::PersistentVolumeClaim, key, object.is_some())
        }
        Related::StorageClass(key, object) => (VolumeKind::StorageClass, key, object.is_some()),
        Related::CSINode(key, object) => (VolumeKind::CSINode, key, object.is_some()),
        Related::CSIDriver(key, object) => (VolumeKind::CSIDriver, key, object.is_some()),
        Related::CSIStorageCapacity(key, object) => {
            (VolumeKind::CSIStorageCapacity, key, object.is_some())
        }
        Related::VolumeAttachment(key, object) => {
            (VolumeKind::VolumeAttachment, key, object.is_some())
        }
        _ => return None,
    })
}

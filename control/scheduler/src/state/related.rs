//! Changes of the objects that plugins look up.

use std::sync::Arc;

use dormouse_cluster::Key;
use dormouse_scheduler_decide::queue::{VolumeChange, VolumeKind};
use dormouse_scheduler_shard::{Kind, Object, Thing};
use k8s_openapi::jiff::Timestamp;

use super::State;
use crate::queue::Happened;
use crate::source::Related;

impl State {
    /// Applies a change of an object other than a node or a pod. One that cannot be read keeps its former state.
    pub fn apply_related(&mut self, now: Timestamp, related: &Related) {
        let (key, kind, thing) = thing(related);
        let exists = thing.is_some();
        let applied = if let Some(thing) = thing {
            self.decider.set_thing(thing)
        } else {
            self.decider.remove_thing(kind, &key.namespace, &key.name);
            Ok(())
        };
        if let Err(error) = applied {
            tracing::warn!(object = %key, %error, "an object cannot be read: decisions do not see the change");
            return;
        }
        let Some(kind) = volume_kind(kind) else {
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

/// The object as decisions have it, with its kind; `None` if it was deleted.
fn thing(related: &Related) -> (&Key, Kind, Option<Thing>) {
    match related {
        Related::Namespace(key, one) => (key, Kind::Namespace, of(one.as_ref(), Thing::Namespace)),
        Related::Service(key, one) => (key, Kind::Service, of(one.as_ref(), Thing::Service)),
        Related::ReplicationController(key, one) => {
            let thing = of(one.as_ref(), Thing::ReplicationController);
            (key, Kind::ReplicationController, thing)
        }
        Related::ReplicaSet(key, one) => {
            (key, Kind::ReplicaSet, of(one.as_ref(), Thing::ReplicaSet))
        }
        Related::StatefulSet(key, one) => {
            (key, Kind::StatefulSet, of(one.as_ref(), Thing::StatefulSet))
        }
        Related::PodDisruptionBudget(key, one) => {
            (key, Kind::Budget, of(one.as_ref(), Thing::Budget))
        }
        Related::PersistentVolume(key, one) => (key, Kind::Volume, of(one.as_ref(), Thing::Volume)),
        Related::PersistentVolumeClaim(key, one) => {
            (key, Kind::Claim, of(one.as_ref(), Thing::Claim))
        }
        Related::StorageClass(key, one) => (
            key,
            Kind::StorageClass,
            of(one.as_ref(), Thing::StorageClass),
        ),
        Related::CSINode(key, one) => (key, Kind::CsiNode, of(one.as_ref(), Thing::CsiNode)),
        Related::CSIDriver(key, one) => (key, Kind::CsiDriver, of(one.as_ref(), Thing::CsiDriver)),
        Related::CSIStorageCapacity(key, one) => {
            (key, Kind::Capacity, of(one.as_ref(), Thing::Capacity))
        }
        Related::VolumeAttachment(key, one) => {
            (key, Kind::Attachment, of(one.as_ref(), Thing::Attachment))
        }
    }
}

fn of<K>(object: Option<&Arc<K>>, thing: fn(Object<K>) -> Thing) -> Option<Thing> {
    object.map(|object| thing(Arc::clone(object).into()))
}

/// The kind of objects by which volumes are bound and attached; none of others.
fn volume_kind(kind: Kind) -> Option<VolumeKind> {
    Some(match kind {
        Kind::Volume => VolumeKind::PersistentVolume,
        Kind::Claim => VolumeKind::PersistentVolumeClaim,
        Kind::StorageClass => VolumeKind::StorageClass,
        Kind::CsiNode => VolumeKind::CSINode,
        Kind::CsiDriver => VolumeKind::CSIDriver,
        Kind::Capacity => VolumeKind::CSIStorageCapacity,
        Kind::Attachment => VolumeKind::VolumeAttachment,
        _ => return None,
    })
}

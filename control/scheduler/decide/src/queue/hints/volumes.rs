//! The plugins of volumes: claims, volumes and classes that come or change, attachments that go.

use crate::pod::Pod;
use crate::queue::{VolumeChange, VolumeKind};
use crate::status::Plugin;

/// Whether a change of an object may help. kube-scheduler asks more closely for some kinds: what is woken here in vain is
/// rejected again.
pub(super) fn may_help(
    plugin: Plugin,
    pod: &Pod,
    (kind, change): (VolumeKind, VolumeChange),
    namespace: &str,
) -> bool {
    let is_near = kind != VolumeKind::PersistentVolumeClaim || namespace == pod.key.namespace;
    is_near && registers(plugin, kind, change)
}

fn registers(plugin: Plugin, kind: VolumeKind, change: VolumeChange) -> bool {
    use VolumeChange::{Added, Deleted, Updated};
    match (plugin, kind) {
        (
            Plugin::VolumeBinding,
            VolumeKind::PersistentVolumeClaim
            | VolumeKind::PersistentVolume
            | VolumeKind::StorageClass
            | VolumeKind::CSINode
            | VolumeKind::CSIStorageCapacity,
        )
        | (Plugin::VolumeZone, VolumeKind::PersistentVolumeClaim | VolumeKind::PersistentVolume)
        | (Plugin::VolumeRestrictions, VolumeKind::PersistentVolumeClaim)
        | (Plugin::NodeVolumeLimits, VolumeKind::PersistentVolumeClaim | VolumeKind::CSINode) => {
            change != Deleted
        }
        (Plugin::VolumeBinding, VolumeKind::CSIDriver) => change == Updated,
        (Plugin::VolumeZone, VolumeKind::StorageClass) => change == Added,
        (Plugin::NodeVolumeLimits, VolumeKind::VolumeAttachment) => change == Deleted,
        _ => false,
    }
}

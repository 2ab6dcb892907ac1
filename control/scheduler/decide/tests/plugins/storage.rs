//! Claims, volumes, storage classes and limits of nodes.

mod input;

use dormouse_scheduler_decide::Snapshot;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};

use crate::cluster::spec;
pub(crate) use input::{Claims, clusters, node, pod, random};

#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    claims: Vec<PersistentVolumeClaim>,
    volumes: Vec<PersistentVolume>,
    classes: Vec<StorageClass>,
    csi_nodes: Vec<CSINode>,
}

impl Storage {
    pub(crate) fn set(&self, snapshot: &mut Snapshot) {
        self.claims
            .iter()
            .for_each(|one| snapshot.set_claim(one).unwrap());
        self.volumes
            .iter()
            .for_each(|one| snapshot.set_volume(one).unwrap());
        self.classes
            .iter()
            .for_each(|one| snapshot.set_storage_class(one).unwrap());
        self.csi_nodes
            .iter()
            .for_each(|one| snapshot.set_csi_node(one).unwrap());
    }

    /// The pod's claims; `None` for one that does not exist.
    pub(crate) fn claims(&self, pod: &Pod) -> Vec<Option<&PersistentVolumeClaim>> {
        let find = |name: &String| {
            self.claims.iter().find(|claim| {
                claim.metadata.namespace == pod.metadata.namespace
                    && claim.metadata.name.as_ref() == Some(name)
            })
        };
        claim_names(pod).into_iter().map(find).collect()
    }

    pub(crate) fn volumes(&self) -> &[PersistentVolume] {
        &self.volumes
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes
            .iter()
            .find(|one| one.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes
            .iter()
            .find(|one| one.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn csi_node(&self, name: &str) -> Option<&CSINode> {
        self.csi_nodes
            .iter()
            .find(|one| one.metadata.name.as_deref() == Some(name))
    }
}

pub(crate) fn claim_names(pod: &Pod) -> Vec<&String> {
    let volumes = spec(pod).volumes.iter().flatten();
    volumes
        .filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name))
        .collect()
}

/// The volume that a claim names; empty if none.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default()
}

/// The class that a claim names; empty if none.
pub(crate) fn class_name(claim: &PersistentVolumeClaim) -> &str {
    claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// The volume is provisioned when the pod has a node.
pub(crate) fn waits(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

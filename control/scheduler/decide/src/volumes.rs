//! Volumes of pods, claims, persistent volumes, storage classes and attach limits.

mod objects;
mod storage;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, Volume};

pub(crate) use objects::{Claim, Class, PersistentVolume, limits};
pub(crate) use storage::{Attachment, Capacity, publishes_capacity};

/// The namespace and the name of a claim.
pub(crate) type ClaimKey = (String, String);

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodVolume {
    /// A claim, by its name.
    Claim(String),
    /// A claim that is created for the pod, by the name of the volume.
    Ephemeral(String),
    /// A disk that cannot be attached twice.
    Disk(Disk),
    /// A source that Kubernetes translates to a CSI volume; its field.
    InTree(&'static str),
}

/// A disk of which conflicts are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Disk {
    Gce { name: String, is_read_only: bool },
    Aws { id: String },
    Iscsi { iqn: String, is_read_only: bool },
    Rbd { image: RbdImage, is_read_only: bool },
}

/// An image of a Ceph cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RbdImage {
    monitors: Vec<String>,
    pool: String,
    image: String,
}

/// The volumes of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    pub(crate) claims: BTreeMap<ClaimKey, Claim>,
    pub(crate) persistent: BTreeMap<String, PersistentVolume>,
    pub(crate) classes: BTreeMap<String, Class>,
    /// The volumes that a node can attach, by node and driver.
    pub(crate) limits: BTreeMap<String, BTreeMap<String, i64>>,
    /// By node and the name of the attachment.
    pub(crate) attachments: BTreeMap<String, BTreeMap<String, Attachment>>,
    /// Drivers that publish the room that they have.
    pub(crate) publishing: BTreeSet<String>,
    /// The room of drivers, by namespace and name.
    pub(crate) capacities: BTreeMap<(String, String), Capacity>,
}

impl PodVolume {
    /// The volumes of a pod that plugins read.
    pub(crate) fn all(spec: &PodSpec) -> Vec<Self> {
        spec.volumes.iter().flatten().flat_map(Self::of).collect()
    }

    fn of(volume: &Volume) -> Vec<Self> {
        if let Some(claim) = &volume.persistent_volume_claim {
            return vec![Self::Claim(claim.claim_name.clone())];
        }
        if volume.ephemeral.is_some() {
            return vec![Self::Ephemeral(volume.name.clone())];
        }
        let in_tree = [
            (
                volume.aws_elastic_block_store.is_some(),
                "awsElasticBlockStore",
            ),
            (volume.azure_disk.is_some(), "azureDisk"),
            (volume.cinder.is_some(), "cinder"),
            (volume.gce_persistent_disk.is_some(), "gcePersistentDisk"),
            (volume.portworx_volume.is_some(), "portworxVolume"),
        ];
        let in_tree = in_tree.into_iter().filter(|(is_some, _)| *is_some);
        let in_tree = in_tree.map(|(_, field)| Self::InTree(field));
        in_tree.chain(Disk::of(volume).map(Self::Disk)).collect()
    }

    /// The claim of a pod's volume.
    pub(crate) fn claim(&self, pod: &str) -> Option<String> {
        match self {
            Self::Claim(name) => Some(name.clone()),
            Self::Ephemeral(volume) => Some(format!("{pod}-{volume}")),
            Self::Disk(_) | Self::InTree(_) => None,
        }
    }
}

impl Disk {
    fn of(volume: &Volume) -> Option<Self> {
        let is_set = |flag: Option<bool>| flag == Some(true);
        if let Some(disk) = &volume.gce_persistent_disk {
            return Some(Self::Gce {
                name: disk.pd_name.clone(),
                is_read_only: is_set(disk.read_only),
            });
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(Self::Aws {
                id: disk.volume_id.clone(),
            });
        }
        if let Some(disk) = &volume.iscsi {
            return Some(Self::Iscsi {
                iqn: disk.iqn.clone(),
                is_read_only: is_set(disk.read_only),
            });
        }
        let disk = volume.rbd.as_ref()?;
        Some(Self::Rbd {
            image: RbdImage {
                monitors: disk.monitors.clone(),
                pool: disk.pool.clone().unwrap_or_default(),
                image: disk.image.clone(),
            },
            is_read_only: is_set(disk.read_only),
        })
    }

    /// Whether both cannot be on the same node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Gce {
                    name: a,
                    is_read_only: p,
                },
                Self::Gce {
                    name: b,
                    is_read_only: q,
                },
            )
            | (
                Self::Iscsi {
                    iqn: a,
                    is_read_only: p,
                },
                Self::Iscsi {
                    iqn: b,
                    is_read_only: q,
                },
            ) => a == b && !(*p && *q),
            (Self::Aws { id: a }, Self::Aws { id: b }) => a == b,
            (
                Self::Rbd {
                    image: a,
                    is_read_only: p,
                },
                Self::Rbd {
                    image: b,
                    is_read_only: q,
                },
            ) => a.overlaps(b) && !(*p && *q),
            _ => false,
        }
    }
}

impl RbdImage {
    fn overlaps(&self, other: &Self) -> bool {
        let shared = self.monitors.iter().any(|one| other.monitors.contains(one));
        shared && self.pool == other.pool && self.image == other.image
    }
}

impl Volumes {
    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The class of a claim, if it has one that exists.
    pub(crate) fn class(&self, claim: &Claim) -> Option<&Class> {
        self.classes.get(&claim.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(text: &str) -> Disk {
        Disk::of(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_disk_conflicts_with_itself_unless_both_only_read() {
        let gce = |ro| {
            disk(&format!(
                r#"{{"name": "v", "gcePersistentDisk": {{"pdName": "d", "readOnly": {ro}}}}}"#
            ))
        };
        assert!(gce(true).conflicts(&gce(false)));
        assert!(!gce(true).conflicts(&gce(true)));
        let rbd = |monitor| {
            disk(&format!(
                r#"{{"name": "v", "rbd": {{"monitors": ["{monitor}", "x"], "image": "i"}}}}"#
            ))
        };
        assert!(rbd("a").conflicts(&rbd("b")));
        assert!(!rbd("a").conflicts(&gce(false)));
    }
}

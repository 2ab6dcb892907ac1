//! Claims, persistent volumes, storage classes and CSI nodes, parsed once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolume as ApiVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Malformed;
use crate::amount::{Amount, amounts};
use crate::node_selector::NodeSelector;
use crate::pod::Pod;
use crate::selector::{Labels, Requirement, Selector};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const BOUND_ANNOTATION: &str = "pv.kubernetes.io/bind-completed";
const NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";
const STORAGE: &str = "storage";
const FILESYSTEM: &str = "Filesystem";

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    uid: String,
    /// The pod that it was created for.
    controller_uid: Option<String>,
    pub(crate) is_lost: bool,
    pub(crate) is_terminating: bool,
    is_bound: bool,
    /// The node for which it is being provisioned.
    pub(crate) selected_node: Option<String>,
    pub(crate) class: String,
    pub(crate) volume: String,
    mode: String,
    pub(crate) access_modes: Vec<String>,
    pub(crate) size: Amount,
    /// `None` where any volume will do. An error has Kubernetes' text.
    pub(crate) selector: Option<Result<Selector, String>>,
    attributes_class: String,
}

/// A persistent volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PersistentVolume {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    is_terminating: bool,
    is_available: bool,
    capacity: Amount,
    /// Namespace, name and UID.
    claim: Option<(String, String, String)>,
    pub(crate) class: String,
    mode: String,
    access_modes: Vec<String>,
    attributes_class: String,
    pub(crate) nodes: Option<NodeSelector>,
    /// The driver and the volume's handle.
    pub(crate) csi: Option<(String, String)>,
    /// The field of a source that Kubernetes translates to a CSI volume.
    pub(crate) in_tree: Option<&'static str>,
}

/// A storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) provisioner: String,
    pub(crate) binding_mode: Option<String>,
    /// `None` for a term that matches no node.
    pub(crate) topologies: Vec<Option<Selector>>,
}

fn name(meta: &ObjectMeta, kind: &str) -> Result<String, Malformed> {
    let name = meta.name.clone().filter(|name| !name.is_empty());
    name.ok_or_else(|| Malformed::new("metadata.name", format_args!("a {kind} has a name")))
}

fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(key).cloned()
}

impl Claim {
    pub(crate) fn parse(claim: &PersistentVolumeClaim) -> Result<Self, Malformed> {
        let meta = &claim.metadata;
        let spec = claim.spec.clone().unwrap_or_default();
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let requests = spec
            .resources
            .as_ref()
            .and_then(|all| all.requests.as_ref());
        let requests = amounts("spec.resources.requests", requests)?;
        let volume = spec.volume_name.unwrap_or_default();
        let owners = meta.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        Ok(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: name(meta, "claim")?,
            uid: meta.uid.clone().unwrap_or_default(),
            controller_uid: controllers.next().map(|owner| owner.uid.clone()),
            is_lost: phase == Some("Lost"),
            is_terminating: meta.deletion_timestamp.is_some(),
            is_bound: !volume.is_empty() && annotation(meta, BOUND_ANNOTATION).is_some(),
            selected_node: annotation(meta, NODE_ANNOTATION),
            class: annotation(meta, CLASS_ANNOTATION)
                .or(spec.storage_class_name)
                .unwrap_or_default(),
            volume,
            mode: spec.volume_mode.unwrap_or_else(|| FILESYSTEM.to_owned()),
            access_modes: spec.access_modes.unwrap_or_default(),
            size: requests.get(STORAGE).copied().unwrap_or(Amount::ZERO),
            selector: spec.selector.as_ref().map(|one| Selector::of(Some(one))),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
        })
    }

    /// An error if the claim was not created for `pod`.
    pub(crate) fn check_owner(&self, pod: &Pod) -> Result<(), String> {
        let is_owner = self.controller_uid.as_deref() == Some(&*pod.uid);
        if is_owner && self.namespace == pod.key.namespace {
            return Ok(());
        }
        let (claim, pod) = (format_args!("{}/{}", self.namespace, self.name), &pod.key);
        Err(format!(
            "PVC {claim} was not created for pod {pod} (pod is not owner)"
        ))
    }

    /// Whether claim and volume are bound to each other, on both sides.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_bound
    }
}

impl PersistentVolume {
    pub(crate) fn parse(volume: &ApiVolume) -> Result<Self, Malformed> {
        let meta = &volume.metadata;
        let spec = volume.spec.clone().unwrap_or_default();
        let phase = volume
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let capacity = amounts("spec.capacity", spec.capacity.as_ref())?;
        let in_tree = in_tree(&spec);
        let claim = spec.claim_ref.map(|claim| {
            let text = Option::unwrap_or_default;
            (text(claim.namespace), text(claim.name), text(claim.uid))
        });
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        Ok(Self {
            name: name(meta, "volume")?,
            labels: meta.labels.clone().unwrap_or_default().into(),
            is_terminating: meta.deletion_timestamp.is_some(),
            is_available: phase == Some("Available"),
            capacity: capacity.get(STORAGE).copied().unwrap_or(Amount::ZERO),
            claim,
            class: annotation(meta, CLASS_ANNOTATION)
                .or(spec.storage_class_name)
                .unwrap_or_default(),
            mode: spec.volume_mode.unwrap_or_else(|| FILESYSTEM.to_owned()),
            access_modes: spec.access_modes.unwrap_or_default(),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            nodes: required.as_ref().map(NodeSelector::lenient),
            csi: spec.csi.map(|csi| (csi.driver, csi.volume_handle)),
            in_tree,
        })
    }

    /// Whether pods on a node with `labels` can use the volume. A malformed term matches no node.
    pub(crate) fn reaches(&self, labels: &Labels) -> bool {
        let nodes = self.nodes.as_ref();
        nodes.is_none_or(|nodes| nodes.matches(labels, None))
    }

    /// Whether the volume is reserved for `claim`.
    pub(crate) fn is_reserved_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|(namespace, name, uid)| {
            *namespace == claim.namespace
                && *name == claim.name
                && (uid.is_empty() || *uid == claim.uid)
        })
    }

    /// Whether `claim` could have the volume, before nodes and selectors are looked at.
    pub(crate) fn suits(&self, claim: &Claim) -> bool {
        let is_free = self.claim.is_none() || self.is_reserved_for(claim);
        is_free
            && self.capacity >= claim.size
            && self.mode == claim.mode
            && self.attributes_class == claim.attributes_class
            && !self.is_terminating
    }

    /// Whether a claim that nothing is reserved for can be bound to the volume.
    pub(crate) fn is_open_to(&self, claim: &Claim) -> bool {
        let has_mode = |mode: &String| self.access_modes.contains(mode);
        self.is_available && self.class == claim.class && claim.access_modes.iter().all(has_mode)
    }

    pub(crate) fn capacity(&self) -> Amount {
        self.capacity
    }
}

fn in_tree(spec: &PersistentVolumeSpec) -> Option<&'static str> {
    let sources = [
        (
            spec.aws_elastic_block_store.is_some(),
            "awsElasticBlockStore",
        ),
        (spec.azure_disk.is_some(), "azureDisk"),
        (spec.azure_file.is_some(), "azureFile"),
        (spec.cinder.is_some(), "cinder"),
        (spec.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (spec.portworx_volume.is_some(), "portworxVolume"),
        (spec.vsphere_volume.is_some(), "vsphereVolume"),
    ];
    let mut present = sources.into_iter().filter(|(is_some, _)| *is_some);
    present.next().map(|(_, field)| field)
}

impl Class {
    pub(crate) fn parse(class: &StorageClass) -> Result<(String, Self), Malformed> {
        let terms = class.allowed_topologies.iter().flatten();
        let terms = terms.map(|term| {
            let all = term.match_label_expressions.iter().flatten();
            let all: Option<Vec<Requirement>> = all
                .map(|one| {
                    let is_valid = !one.values.is_empty();
                    is_valid.then(|| Selector::one_of(&one.key, &one.values))
                })
                .collect();
            all.filter(|all| !all.is_empty()).map(Selector::All)
        });
        let parsed = Self {
            provisioner: class.provisioner.clone(),
            binding_mode: class.volume_binding_mode.clone(),
            topologies: terms.collect(),
        };
        Ok((name(&class.metadata, "storage class")?, parsed))
    }

    /// Whether volumes are bound once the node of their pod is known.
    pub(crate) fn is_delayed(&self) -> bool {
        self.binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }

    /// Whether the class provisions volumes for a node with `labels`.
    pub(crate) fn allows(&self, labels: &Labels) -> bool {
        let matches =
            |term: &Option<Selector>| term.as_ref().is_some_and(|one| one.matches(labels));
        self.topologies.is_empty() || self.topologies.iter().any(matches)
    }
}

/// The name of a node, and the volumes that it can attach, by driver.
pub(crate) fn limits(node: &CSINode) -> Result<(String, BTreeMap<String, i64>), Malformed> {
    let drivers = node.spec.drivers.iter();
    let counts = drivers.filter_map(|driver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), i64::from(count)))
    });
    Ok((name(&node.metadata, "CSI node")?, counts.collect()))
}

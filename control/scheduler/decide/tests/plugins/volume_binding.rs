//! VolumeBinding: a node can have the volumes of the pod's claims, or there are free ones, or they can be provisioned.
//!
//! Sources: "Persistent Volumes: Binding, Node Affinity"; "Storage Classes: Volume binding mode, Allowed topologies"
//! (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, incoming, labels};
use crate::quantity::amounts;
use crate::reference::{Reference, check};
use crate::selector::matches_term;
use crate::storage::{self, Claims, class_name, volume_name, waits};

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The annotation of a claim whose binding is complete.
const IS_BOUND: &str = "pv.kubernetes.io/bind-completed";

pub(crate) struct VolumeBinding;

impl Reference for VolumeBinding {
    fn plugin(&self) -> Plugin {
        Plugin::VolumeBinding
    }

    /// A claim exists, is not lost nor about to go, and is bound, unless it waits for its first consumer.
    fn rejects(&self, cluster: &Cluster, pod: &Pod) -> Option<Code> {
        let is_broken = |claim: Option<&PersistentVolumeClaim>| {
            claim.is_none_or(|claim| {
                let phase = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref());
                let waits = volume_name(claim).is_empty()
                    && cluster.storage.class(class_name(claim)).is_some_and(waits);
                phase == Some("Lost")
                    || claim.metadata.deletion_timestamp.is_some()
                    || !(is_bound(claim) || waits)
            })
        };
        let mut claims = cluster.storage.claims(pod).into_iter();
        claims
            .any(is_broken)
            .then_some(Code::UnschedulableAndUnresolvable)
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let claims = cluster.storage.claims(pod).into_iter().flatten();
        let (bound, waiting): (Vec<_>, Vec<_>) = claims.partition(|claim| is_bound(claim));
        let is_near = |claim: &&PersistentVolumeClaim| {
            let volume = cluster.storage.volume(volume_name(claim));
            volume.is_some_and(|volume| is_reachable(volume, node))
        };
        let is_met = bound.iter().all(is_near)
            && unmatched(cluster, waiting, node).into_iter().all(|claim| {
                let class = cluster.storage.class(class_name(claim));
                class.is_some_and(|class| can_provision(class, node))
            });
        (!is_met).then_some(Code::UnschedulableAndUnresolvable)
    }
}

/// The claims for which no volume is free. A claim takes the smallest volume that is large enough, the smallest claim first.
fn unmatched<'a>(
    cluster: &Cluster,
    mut claims: Vec<&'a PersistentVolumeClaim>,
    node: &Node,
) -> Vec<&'a PersistentVolumeClaim> {
    claims.sort_by_key(|claim| requested(claim));
    let mut free: Vec<&PersistentVolume> = cluster.storage.volumes().iter().collect();
    free.retain(|volume| is_free(volume) && is_reachable(volume, node));
    free.sort_by_key(|volume| capacity(volume));
    claims.retain(|claim| {
        let matched = free.iter().position(|volume| suits(volume, claim));
        matched.map(|nth| free.remove(nth)).is_none()
    });
    claims
}

fn requested(claim: &PersistentVolumeClaim) -> Option<i128> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    amounts(resources.requests.as_ref()).remove("storage")
}

fn capacity(volume: &PersistentVolume) -> Option<i128> {
    amounts(volume.spec.as_ref()?.capacity.as_ref()).remove("storage")
}

fn is_free(volume: &PersistentVolume) -> bool {
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let claim = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    phase == Some("Available") && claim.is_none()
}

/// A volume has the class, the size and the access modes of a claim.
fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (volume_spec, claim_spec) = (volume.spec.as_ref().unwrap(), claim.spec.as_ref().unwrap());
    let offered = volume_spec.access_modes.as_deref().unwrap_or_default();
    let mut wanted = claim_spec.access_modes.iter().flatten();
    volume_spec.storage_class_name == claim_spec.storage_class_name
        && capacity(volume) >= requested(claim)
        && wanted.all(|mode| offered.contains(mode))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let is_complete = annotations.is_some_and(|all| all.contains_key(IS_BOUND));
    is_complete && !volume_name(claim).is_empty()
}

/// The volume's node affinity, if any, matches the node.
fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| {
        required
            .node_selector_terms
            .iter()
            .any(|term| matches_term(term, node))
    })
}

/// The class has a provisioner, and one of its allowed topologies, if any, has all its labels on the node.
fn can_provision(class: &StorageClass, node: &Node) -> bool {
    let labels = labels(node);
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let is_allowed = terms.iter().any(|term| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions.all(|one| {
            labels
                .get(&one.key)
                .is_some_and(|value| one.values.contains(value))
        })
    });
    class.provisioner != NO_PROVISIONER && (terms.is_empty() || is_allowed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn a_node_can_have_the_volumes_of_claims(
        cluster in storage::clusters(Claims::Usable),
        pod in incoming(storage::pod(Claims::Usable)),
    ) {
        check(&VolumeBinding, &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn no_node_can_have_a_broken_claim(
        cluster in storage::clusters(Claims::Broken),
        pod in incoming(storage::pod(Claims::Broken)),
    ) {
        check(&VolumeBinding, &Value::Null, &cluster, &pod)?;
    }
}

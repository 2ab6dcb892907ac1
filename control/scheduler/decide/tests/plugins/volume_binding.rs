//! VolumeBinding: a node can have the volumes of the pod's claims, or they can be provisioned for it.
//!
//! Sources: "Persistent Volumes: Binding, Node Affinity"; "Storage Classes: Volume binding mode, Allowed topologies"
//! (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, incoming, labels};
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
        let can_have = |claim: &PersistentVolumeClaim| {
            if is_bound(claim) {
                is_reachable(cluster, claim, node)
            } else {
                // No volume is free here.
                cluster
                    .storage
                    .class(class_name(claim))
                    .is_some_and(|class| can_provision(class, node))
            }
        };
        let claims = cluster.storage.claims(pod);
        let is_met = claims.into_iter().flatten().all(can_have);
        (!is_met).then_some(Code::UnschedulableAndUnresolvable)
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let is_complete = annotations.is_some_and(|all| all.contains_key(IS_BOUND));
    is_complete && !volume_name(claim).is_empty()
}

/// The volume exists, and its node affinity, if any, matches the node.
fn is_reachable(cluster: &Cluster, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let Some(volume) = cluster.storage.volume(volume_name(claim)) else {
        return false;
    };
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

//! NodeVolumeLimits: the volumes of a CSI driver that a node can have.
//!
//! Sources: "Node-specific Volume Limits"; the API reference of CSINode (kubernetes.io).

use std::collections::BTreeSet;

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, incoming, name};
use crate::reference::{Reference, check};
use crate::storage::{self, Claims, class_name, volume_name};

pub(crate) struct NodeVolumeLimits;

/// A driver, and what it calls the volume.
type Attachment = (String, String);

impl Reference for NodeVolumeLimits {
    fn plugin(&self) -> Plugin {
        Plugin::NodeVolumeLimits
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        if cluster.storage.claims(pod).contains(&None) {
            return Some(Code::UnschedulableAndUnresolvable);
        }
        let present: BTreeSet<_> = cluster
            .pods_on(node)
            .flat_map(|pod| attachments(cluster, pod))
            .collect();
        let new = &attachments(cluster, pod) - &present;
        let csi_node = cluster.storage.csi_node(name(node));
        let mut drivers = csi_node.iter().flat_map(|one| &one.spec.drivers);
        let is_exceeded = drivers.any(|driver| {
            let of_driver = |all: &BTreeSet<Attachment>| {
                i32::try_from(all.iter().filter(|one| one.0 == driver.name).count()).unwrap()
            };
            let limit = driver
                .allocatable
                .as_ref()
                .and_then(|allocatable| allocatable.count);
            limit.is_some_and(|limit| {
                of_driver(&new) > 0 && of_driver(&new) + of_driver(&present) > limit
            })
        });
        is_exceeded.then_some(Code::Unschedulable)
    }
}

/// A volume counts once on a node, however many pods have it.
fn attachments(cluster: &Cluster, pod: &Pod) -> BTreeSet<Attachment> {
    let claims = cluster.storage.claims(pod).into_iter().flatten();
    claims
        .filter_map(|claim| attachment(cluster, claim))
        .collect()
}

/// The volume of a claim; without one, the volume that its class will provision for it.
fn attachment(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Option<Attachment> {
    if let Some(volume) = cluster.storage.volume(volume_name(claim)) {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        return Some((csi.driver.clone(), csi.volume_handle.clone()));
    }
    let class = cluster.storage.class(class_name(claim))?;
    let own = claim.metadata.name.clone().unwrap();
    Some((class.provisioner.clone(), format!("of the claim {own}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn a_node_has_as_many_volumes_as_its_drivers_allow(
        cluster in storage::clusters(Claims::Usable),
        pod in incoming(storage::pod(Claims::Usable)),
    ) {
        check(&NodeVolumeLimits, &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn limits_are_kept_with_broken_claims_too(
        cluster in storage::clusters(Claims::Broken),
        pod in incoming(storage::pod(Claims::Broken)),
    ) {
        check(&NodeVolumeLimits, &Value::Null, &cluster, &pod)?;
    }
}

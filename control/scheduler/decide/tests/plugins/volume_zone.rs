//! VolumeZone: a node is in the zone and region that the labels of the pod's volumes name.
//!
//! Sources: "Running in multiple zones: Storage access for zones"; "Well-Known Labels" (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, Labels, incoming, labels};
use crate::reference::{Reference, check};
use crate::storage::{self, Claims, class_name, volume_name, waits};

/// The labels, and what stands for the older two on a node that lacks them.
const TOPOLOGY: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

pub(crate) struct VolumeZone;

impl Reference for VolumeZone {
    fn plugin(&self) -> Plugin {
        Plugin::VolumeZone
    }

    /// A claim exists; it has a volume, or will have one when the pod has a node.
    fn rejects(&self, cluster: &Cluster, pod: &Pod) -> Option<Code> {
        let is_broken = |claim: Option<&PersistentVolumeClaim>| match claim.map(volume_name) {
            None => true,
            Some("") => !claim
                .and_then(|claim| cluster.storage.class(class_name(claim)))
                .is_some_and(waits),
            Some(name) => cluster.storage.volume(name).is_none(),
        };
        let mut claims = cluster.storage.claims(pod).into_iter();
        claims
            .any(is_broken)
            .then_some(Code::UnschedulableAndUnresolvable)
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let labels = labels(node);
        let is_anywhere = TOPOLOGY.iter().all(|(key, _)| !labels.contains_key(*key));
        let claims = cluster.storage.claims(pod).into_iter().flatten();
        let mut volumes = claims.filter_map(|claim| cluster.storage.volume(volume_name(claim)));
        let is_outside = !is_anywhere && volumes.any(|volume| !is_in_zone(volume, &labels));
        is_outside.then_some(Code::UnschedulableAndUnresolvable)
    }
}

/// A label of a volume is one value or several, which `__` separates.
fn is_in_zone(volume: &PersistentVolume, node: &Labels) -> bool {
    let of_volume = volume.metadata.labels.clone().unwrap_or_default();
    TOPOLOGY.iter().all(|(key, other)| {
        let Some(allowed) = of_volume.get(*key) else {
            return true;
        };
        let value = node.get(*key).or_else(|| node.get(*other));
        value.is_some_and(|value| allowed.split("__").any(|one| one == value))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn volumes_are_in_their_zones(
        cluster in storage::clusters(Claims::Usable),
        pod in incoming(storage::pod(Claims::Usable)),
    ) {
        check(&VolumeZone, &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn a_claim_without_a_volume_is_in_no_zone(
        cluster in storage::clusters(Claims::Broken),
        pod in incoming(storage::pod(Claims::Broken)),
    ) {
        check(&VolumeZone, &Value::Null, &cluster, &pod)?;
    }
}

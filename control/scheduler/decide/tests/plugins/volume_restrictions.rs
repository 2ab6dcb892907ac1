//! VolumeRestrictions: disks that one pod only may have, and claims with `ReadWriteOncePod`.
//!
//! Sources: "Persistent Volumes: Access Modes"; the API reference of the volume types (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Volume};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, incoming, one_of, spec};
use crate::reference::{Reference, check};
use crate::storage::{self, Claims, claim_names};

pub(crate) struct VolumeRestrictions;

impl Reference for VolumeRestrictions {
    fn plugin(&self) -> Plugin {
        Plugin::VolumeRestrictions
    }

    fn rejects(&self, cluster: &Cluster, pod: &Pod) -> Option<Code> {
        let claims = cluster.storage.claims(pod);
        claims
            .contains(&None)
            .then_some(Code::UnschedulableAndUnresolvable)
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let others = cluster.pods_on(node).flat_map(volumes);
        let others: Vec<_> = others.collect();
        let is_taken = |one: &Volume| others.iter().any(|other| conflict(one, other));
        let is_in_use = volumes(pod).any(is_taken) || is_claim_in_use(cluster, pod);
        is_in_use.then_some(Code::Unschedulable)
    }
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    spec(pod).volumes.iter().flatten()
}

/// A pod on any node has one of the claims that one pod only may have.
fn is_claim_in_use(cluster: &Cluster, pod: &Pod) -> bool {
    let is_exclusive = |claim: &&PersistentVolumeClaim| {
        let modes = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.access_modes.as_ref());
        modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
    };
    let mut exclusive = cluster
        .storage
        .claims(pod)
        .into_iter()
        .flatten()
        .filter(is_exclusive);
    exclusive.any(|claim| {
        let name = claim.metadata.name.as_ref().unwrap();
        let uses = |other: &Pod| {
            other.metadata.namespace == pod.metadata.namespace && claim_names(other).contains(&name)
        };
        cluster.pods.iter().any(uses)
    })
}

/// Two volumes are the same disk, and not both only read, if that helps.
fn conflict(one: &Volume, other: &Volume) -> bool {
    let writes = |one: Option<bool>, other: Option<bool>| one != Some(true) || other != Some(true);
    let gce = one
        .gce_persistent_disk
        .as_ref()
        .zip(other.gce_persistent_disk.as_ref());
    let aws = one
        .aws_elastic_block_store
        .as_ref()
        .zip(other.aws_elastic_block_store.as_ref());
    let iscsi = one.iscsi.as_ref().zip(other.iscsi.as_ref());
    let rbd = one.rbd.as_ref().zip(other.rbd.as_ref());
    gce.is_some_and(|(one, other)| {
        one.pd_name == other.pd_name && writes(one.read_only, other.read_only)
    }) || aws.is_some_and(|(one, other)| one.volume_id == other.volume_id)
        || iscsi.is_some_and(|(one, other)| {
            one.iqn == other.iqn && writes(one.read_only, other.read_only)
        })
        || rbd.is_some_and(|(one, other)| {
            let mut monitors = one.monitors.iter();
            monitors.any(|monitor| other.monitors.contains(monitor))
                && one.pool == other.pool
                && one.image == other.image
                && writes(one.read_only, other.read_only)
        })
}

fn disk() -> impl Strategy<Value = Value> {
    let names = || one_of(&["a", "b"]);
    let read_only = prop::option::of(any::<bool>());
    let monitors = prop::sample::subsequence(vec!["m0", "m1", "m2"], 1..3);
    (0..4_u8, names(), names(), monitors, read_only).prop_map(|(kind, name, other, monitors, read_only)| match kind {
        0 => json!({"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": read_only}}),
        1 => json!({"name": "v", "awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}),
        2 => json!({"name": "v", "iscsi": {"targetPortal": "1.2.3.4", "iqn": name, "lun": 0, "readOnly": read_only}}),
        _ => json!({"name": "v", "rbd": {"monitors": monitors, "image": name, "pool": other, "readOnly": read_only}}),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn a_disk_is_of_one_pod_unless_it_is_read_only(
        cluster in cluster(Just(json!({})), array(disk(), 2).prop_map(|volumes| json!({"spec": {"volumes": volumes}}))),
        pod in incoming(array(disk(), 3).prop_map(|volumes| json!({"spec": {"volumes": volumes}}))),
    ) {
        check(&VolumeRestrictions, &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn a_claim_of_one_pod_is_of_one_pod_in_the_cluster(
        cluster in storage::clusters(Claims::Broken),
        pod in incoming(storage::pod(Claims::Broken)),
    ) {
        check(&VolumeRestrictions, &Value::Null, &cluster, &pod)?;
    }
}

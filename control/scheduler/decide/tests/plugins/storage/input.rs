//! Random storage, pods with claims, and nodes in zones.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Storage;
use crate::cluster::{Cluster, cluster, object, one_of, some_of};

const VOLUMES_LEN: usize = 5;
const CLAIMS_LEN: usize = 7;
/// One more than there are.
const CLAIMS: &[&str] = &["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const BOUND_TO: &[&str] = &["v0", "v1", "v2", "v3", "v4"];
const CLASSES: &[&str] = &["immediate", "late", "late", "zonal", "static", "absent", ""];
const NODE_LABELS: &[(&str, &[&str])] = &[
    ("topology.kubernetes.io/zone", &["z0", "z1"]),
    ("topology.kubernetes.io/region", &["r0", "r1"]),
    ("failure-domain.beta.kubernetes.io/zone", &["z0", "z1"]),
    ("rack", &["k0", "k1"]),
];
const VOLUME_LABELS: &[(&str, &[&str])] = &[
    (
        "topology.kubernetes.io/zone",
        &["z0", "z1", "z0__z1", "z1__z2"],
    ),
    ("topology.kubernetes.io/region", &["r0", "r0__r1"]),
    ("failure-domain.beta.kubernetes.io/zone", &["z0", "z1__z0"]),
];

/// Weights of the states of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claims {
    /// Bound, or to be provisioned.
    Usable,
    /// Some are lost, unbound or bound to nothing.
    Broken,
}

fn claim(claims: Claims) -> impl Strategy<Value = Value> {
    let broken = match claims {
        Claims::Usable => 0.0,
        Claims::Broken => 0.2,
    };
    let modes = one_of(&["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]);
    let is_bound = prop::bool::weighted(0.7);
    let class = match claims {
        Claims::Usable => one_of(&["late", "zonal", "static"]).boxed(),
        Claims::Broken => one_of(CLASSES).boxed(),
    };
    let state = (0..4_u8, prop::bool::weighted(broken));
    (modes, is_bound, one_of(BOUND_TO), class, state).prop_map(
        |(mode, is_bound, volume, class, (state, is_broken))| {
            let mut claim = json!({"metadata": {"namespace": "default"},
            "spec": {"accessModes": [mode], "storageClassName": class},
            "status": {"phase": if is_bound { "Bound" } else { "Pending" }}});
            if is_bound {
                claim["spec"]["volumeName"] = volume.into();
                claim["metadata"]["annotations"] =
                    json!({"pv.kubernetes.io/bind-completed": "yes"});
            }
            match state {
                _ if !is_broken => {}
                0 => claim["status"]["phase"] = "Lost".into(),
                1 => claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                2 => claim["metadata"]["annotations"] = json!({}),
                _ => claim["spec"]["volumeName"] = "v9".into(),
            }
            claim
        },
    )
}

fn volume() -> impl Strategy<Value = Value> {
    let labels = prop_oneof![1 => Just(json!({})), 1 => some_of(VOLUME_LABELS)];
    let affinity = prop::option::of((
        one_of(&["rack", "topology.kubernetes.io/zone"]),
        one_of(&["k0", "z0", "z1"]),
    ));
    let csi = prop::option::weighted(0.8, (one_of(&["d0", "d1"]), one_of(&["h0", "h1", "h2"])));
    let modes = prop::sample::subsequence(vec!["ReadWriteOnce", "ReadWriteMany"], 1..=2);
    let free = prop::option::weighted(0.4, one_of(&["late", "zonal", "static"]));
    (labels, affinity, csi, modes, free).prop_map(|(labels, affinity, csi, modes, free)| {
        let mut volume = json!({"metadata": {"labels": labels},
            "spec": {"accessModes": modes, "storageClassName": free},
            "status": {"phase": if free.is_some() { "Available" } else { "Bound" }}});
        if let Some((key, value)) = affinity {
            let one = json!({"key": key, "operator": "In", "values": [value]});
            volume["spec"]["nodeAffinity"] =
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [one]}]}});
        }
        let (kind, source) = match csi {
            Some((driver, handle)) => ("csi", json!({"driver": driver, "volumeHandle": handle})),
            None => ("nfs", json!({"server": "s", "path": "/"})),
        };
        volume["spec"][kind] = source;
        if free.is_none() {
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
        }
        volume
    })
}

fn csi_node() -> impl Strategy<Value = Value> {
    let driver = |name| {
        prop::option::weighted(0.8, prop::option::of(0..5_u8)).prop_map(move |limit| {
            limit.map(|count| json!({"name": name, "nodeID": "n", "allocatable": {"count": count}}))
        })
    };
    (driver("d0"), driver("d1")).prop_map(|(one, other)| {
        let drivers: Vec<_> = [one, other].into_iter().flatten().collect();
        json!({"spec": {"drivers": drivers}})
    })
}

fn classes() -> Vec<StorageClass> {
    let class = |name: &str, driver: &str, mode: &str| json!({"metadata": {"name": name}, "provisioner": driver, "volumeBindingMode": mode});
    let mut zonal = class("zonal", "d1", "WaitForFirstConsumer");
    let zone = json!({"key": "topology.kubernetes.io/zone", "values": ["z0"]});
    let rack = json!({"key": "rack", "values": ["k0", "k1"]});
    zonal["allowedTopologies"] =
        json!([{"matchLabelExpressions": [zone, rack]}, {"matchLabelExpressions": [rack]}]);
    zonal["allowedTopologies"][1]["matchLabelExpressions"][0]["values"] = json!(["k1"]);
    let all = [
        class("immediate", "d0", "Immediate"),
        class("late", "d0", "WaitForFirstConsumer"),
        class(
            "static",
            "kubernetes.io/no-provisioner",
            "WaitForFirstConsumer",
        ),
        zonal,
    ];
    all.into_iter().map(object).collect()
}

/// Random objects with names by their position.
fn named<T: Debug + DeserializeOwned>(
    template: impl Strategy<Value = Value>,
    prefix: &'static str,
    len: RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(template, len).prop_map(move |all| {
        let all = all.into_iter().enumerate();
        let named = all.map(|(nth, mut one)| {
            one["metadata"]["name"] = format!("{prefix}{nth}").into();
            object(one)
        });
        named.collect()
    })
}

pub(crate) fn random(claims: Claims) -> impl Strategy<Value = Storage> {
    let claims = named::<PersistentVolumeClaim>(claim(claims), "c", CLAIMS_LEN..=CLAIMS_LEN);
    let volumes = named::<PersistentVolume>(volume(), "v", VOLUMES_LEN..=VOLUMES_LEN);
    let csi_nodes = named(csi_node(), "n", 0..=7);
    (
        claims,
        sizes(CLAIMS_LEN, 512),
        volumes,
        sizes(VOLUMES_LEN, 1024),
        csi_nodes,
    )
        .prop_map(
            |(mut claims, claim_sizes, mut volumes, volume_sizes, csi_nodes)| {
                for (claim, size) in claims.iter_mut().zip(claim_sizes) {
                    set_request(claim, size);
                }
                for (volume, size) in volumes.iter_mut().zip(volume_sizes) {
                    let spec = volume.spec.get_or_insert_default();
                    spec.capacity = Some(BTreeMap::from([("storage".to_owned(), size)]));
                }
                Storage {
                    claims,
                    volumes,
                    classes: classes(),
                    csi_nodes,
                }
            },
        )
}

fn set_request(claim: &mut PersistentVolumeClaim, size: Quantity) {
    let resources = &mut claim.spec.get_or_insert_default().resources;
    let requests = Some(BTreeMap::from([("storage".to_owned(), size)]));
    *resources = Some(VolumeResourceRequirements {
        requests,
        ..Default::default()
    });
}

/// Different sizes, so that the smallest volume that is large enough is one.
fn sizes(len: usize, unit_mib: usize) -> impl Strategy<Value = Vec<Quantity>> {
    let all: Vec<_> = (1..=len)
        .map(|nth| Quantity(format!("{}Mi", nth * unit_mib)))
        .collect();
    Just(all).prop_shuffle()
}

/// A template of a pod with claims.
pub(crate) fn pod(claims: Claims) -> impl Strategy<Value = Value> {
    let len = match claims {
        Claims::Usable => CLAIMS_LEN,
        Claims::Broken => CLAIMS.len(),
    };
    prop::sample::subsequence(&CLAIMS[..len], 0..4).prop_map(|names| {
        let volume = |name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let volumes: Vec<_> = names.into_iter().map(volume).collect();
        json!({"spec": {"volumes": volumes}})
    })
}

/// A template of a node in zones.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    some_of(NODE_LABELS).prop_map(|labels| json!({"metadata": {"labels": labels}}))
}

/// A cluster with storage.
pub(crate) fn clusters(claims: Claims) -> impl Strategy<Value = Cluster> {
    (cluster(node(), pod(Claims::Usable)), random(claims))
        .prop_map(|(cluster, storage)| Cluster { storage, ..cluster })
}

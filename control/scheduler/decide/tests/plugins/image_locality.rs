//! ImageLocality: the bytes of the pod's images that a node has, less for images that few nodes have.
//!
//! Sources: "Scheduler Configuration", "Images" (kubernetes.io).

use dormouse_scheduler_decide::Plugin;
use k8s_openapi::api::core::v1::{ContainerImage, Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, incoming, one_of, spec};
use crate::reference::{Column, Reference, SCORE_MAX, check};

const MIB: i64 = 1024 * 1024;
/// What counts as nothing.
const BYTES_MIN: i64 = 23 * MIB;
/// What counts as all, for each container.
const CONTAINER_BYTES_MAX: i64 = 1000 * MIB;

pub(crate) struct ImageLocality;

impl Reference for ImageLocality {
    fn plugin(&self) -> Plugin {
        Plugin::ImageLocality
    }

    fn score(&self, cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let spec = spec(pod);
        let containers: Vec<_> = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
            .collect();
        let of_containers = containers.iter().filter_map(|one| one.image.as_deref());
        let sources = spec
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.image.as_ref());
        let of_volumes = sources.filter_map(|source| source.reference.as_deref());
        let names: Vec<_> = of_containers.chain(of_volumes).map(tagged).collect();
        let bytes_max = CONTAINER_BYTES_MAX * i64::try_from(containers.len()).unwrap();
        let score = |node: &&Node| {
            let sum: i64 = names
                .iter()
                .map(|name| weighted_bytes(cluster, node, name))
                .sum();
            let bytes = sum.clamp(BYTES_MIN, bytes_max);
            SCORE_MAX * (bytes - BYTES_MIN) / (bytes_max - BYTES_MIN)
        };
        Some(Column::plain(feasible.iter().map(score).collect()))
    }
}

/// The size of an image that a node has, times the share of the nodes that have it. An image has one size: that of the
/// first node that named it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "bytes are far below 2^53, and truncated"
)]
fn weighted_bytes(cluster: &Cluster, node: &Node, name: &str) -> i64 {
    if size_on(node, name).is_none() {
        return 0;
    }
    let sizes: Vec<i64> = cluster
        .nodes
        .iter()
        .filter_map(|node| size_on(node, name))
        .collect();
    let share = sizes.len() as f64 / cluster.nodes.len() as f64;
    (sizes[0] as f64 * share) as i64
}

fn size_on(node: &Node, name: &str) -> Option<i64> {
    let images = node
        .status
        .iter()
        .flat_map(|status| status.images.iter().flatten());
    let is_named = |image: &&ContainerImage| image.names.iter().flatten().any(|one| one == name);
    let mut sizes = images
        .filter(is_named)
        .map(|image| image.size_bytes.unwrap_or(0));
    sizes.next()
}

/// Without a tag or digest an image has the tag `latest`; a colon before the last slash is that of a port.
fn tagged(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.contains(':') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

const WANTED: &[&str] = &[
    "web",
    "web:1",
    "host:5000/web",
    "host:5000/web:1",
    "web@sha256:12",
    "absent:1",
];
const PRESENT: &[&str] = &[
    "web:latest",
    "web:1",
    "host:5000/web:latest",
    "host:5000/web:1",
    "web@sha256:12",
    "host:5000/web",
];

/// A template of a pod with images.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let container = || one_of(WANTED).prop_map(|image| json!({"name": "c", "image": image}));
    let volume =
        one_of(WANTED).prop_map(|image| json!({"name": "v", "image": {"reference": image}}));
    let containers = prop::collection::vec(container(), 1..4);
    (containers, array(container(), 2), array(volume, 2)).prop_map(|(containers, inits, volumes)| {
        json!({"spec": {"containers": containers, "initContainers": inits, "volumes": volumes}})
    })
}

/// A template of a node with images.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    let size = prop_oneof![0..30 * MIB, 0..3000 * MIB];
    let names = prop::sample::subsequence(PRESENT, 1..3);
    let image = (names, size).prop_map(|(names, size)| json!({"names": names, "sizeBytes": size}));
    array(image, 3).prop_map(|images| json!({"status": {"images": images}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn images_are_scored_as_documented(
        cluster in cluster(node(), Just(json!({}))),
        pod in incoming(pod()),
    ) {
        check(&ImageLocality, &Value::Null, &cluster, &pod)?;
    }
}

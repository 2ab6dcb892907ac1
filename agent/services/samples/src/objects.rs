//! Random objects, many of them as no API server would store them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::services;

/// Addresses that objects and packets name, good and bad.
pub const ADDRESSES: [&str; 18] = [
    "172.30.0.1",
    "172.30.0.2",
    "fd00:172:30::1",
    "fd00:172:30::2",
    "10.244.1.1",
    "10.244.01.2",
    "10.244.2.3",
    "fd00:10:244:1::1",
    "fd00:10:244:2::3",
    "192.168.0.2",
    "2001:db8::2",
    "198.18.0.1",
    "::ffff:198.18.0.1",
    "127.0.0.1",
    "",
    "None",
    "10.244.1",
    "fe80::1%eth0",
];

/// Addresses that endpoints have, by family; the last of each is wrong there.
const ENDPOINTS: [[&str; 6]; 2] = [
    [
        "10.244.1.1",
        "10.244.01.2",
        "10.244.2.3",
        "10.244.2.4",
        "192.168.0.2",
        "fd00:10:244:1::1",
    ],
    [
        "fd00:10:244:1::1",
        "fd00:10:244:2::3",
        "fd00:10:244:2::4",
        "fd00:172:30::1",
        "2001:db8::2",
        "x",
    ],
];

/// An object of an event.
#[derive(Clone, Debug)]
pub enum TestObject {
    /// A Service.
    Service(Box<Service>),
    /// An EndpointSlice.
    Slice(Box<EndpointSlice>),
    /// A Node.
    Node(Box<Node>),
}

/// The last state of every object.
#[derive(Default, Debug)]
pub struct World {
    objects: BTreeMap<(&'static str, String), TestObject>,
    node: Option<TestObject>,
}

impl World {
    /// Notes an event: that an object is present in this state, or that it is deleted.
    pub fn apply(&mut self, object: &TestObject, present: bool) {
        let (kind, meta) = match object {
            TestObject::Service(service) => ("Service", &service.metadata),
            TestObject::Slice(slice) => ("EndpointSlice", &slice.metadata),
            // A node's deletion changes nothing.
            TestObject::Node(node) => {
                let ours = present && node.metadata.name.as_deref() == Some("node-a");
                if ours {
                    self.node = Some(object.clone());
                }
                return;
            }
        };
        let key = (kind, format!("{:?}/{:?}", meta.namespace, meta.name));
        if present {
            self.objects.insert(key, object.clone());
        } else {
            self.objects.remove(&key);
        }
    }

    /// All objects, in an order that does not depend on the events'.
    pub fn objects(&self) -> impl Iterator<Item = &TestObject> {
        self.objects.values().chain(&self.node)
    }
}

/// Random events: an object, and whether it is present or deleted.
pub fn event() -> impl Strategy<Value = (TestObject, bool)> {
    (
        prop_oneof![8 => services::service(), 12 => slice(), 1 => node()],
        prop::bool::weighted(0.93),
    )
}

/// One of the words; `-` stands for no value.
pub fn words(words: &'static [&'static str]) -> impl Strategy<Value = Value> + Clone {
    select(words).prop_map(|word| match word {
        "-" => Value::Null,
        word => json!(word),
    })
}

/// Mostly one of the good ones.
pub fn mostly(
    good: &'static [&'static str],
    bad: &'static [&'static str],
) -> impl Strategy<Value = Value> {
    prop_oneof![19 => words(good), 1 => words(bad)]
}

/// Ports, some of them wrong.
pub fn number() -> impl Strategy<Value = i32> {
    prop_oneof![
        12 => select(vec![80, 443, 8080, 30_080]),
        1 => select(vec![0, -1, 65_535, 65_536, i32::MIN, i32::MAX]),
    ]
}

/// Up to `most` of [`ADDRESSES`].
pub fn addresses(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(&ADDRESSES[..]), 0..=most)
}

/// Protocols of ports, some of them unknown.
pub fn protocol() -> impl Strategy<Value = Value> {
    mostly(&["TCP", "UDP"], &["SCTP", "-", "ICMP", ""])
}

/// Metadata with one of these names.
pub fn metadata(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let time = words(&["-", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]);
    let namespace = mostly(&["ns"], &["other", "-"]);
    let label = mostly(&["-"], &[""]);
    let names = (
        mostly(names, &["-"]),
        namespace,
        mostly(&["a", "b"], &["", "-"]),
    );
    (names, time, label).prop_map(|((name, namespace, owner), created, label)| {
        let labels = json!({
            "kubernetes.io/service-name": owner,
            "service.kubernetes.io/service-proxy-name": label.clone(),
            "service.kubernetes.io/headless": label,
        });
        let present = labels.as_object().unwrap().clone().into_iter();
        let labels: BTreeMap<_, _> = present.filter(|(_, value)| !value.is_null()).collect();
        json!({"name": name, "namespace": namespace, "creationTimestamp": created, "labels": labels})
    })
}

/// Hints: in some slices none, in some each endpoint has them, in some a few.
fn hints() -> impl Strategy<Value = Value> {
    let zones = prop::collection::vec(select(vec!["z1", "z2"]), 0..3);
    let nodes = prop::collection::vec(select(vec!["node-a", "node-b"]), 0..2);
    (zones, nodes).prop_map(|(zones, nodes)| {
        let named = |names: Vec<&str>| -> Vec<_> {
            let names = names.into_iter();
            names.map(|name| json!({"name": name})).collect()
        };
        json!({"forZones": named(zones), "forNodes": named(nodes)})
    })
}

fn endpoint(family: usize, hinted: f64) -> impl Strategy<Value = Value> {
    let condition = || prop::option::weighted(0.8, any::<bool>());
    let ready = prop::option::weighted(0.5, any::<bool>());
    let node = words(&["node-a", "node-b", "-"]);
    (
        prop::collection::vec(select(&ENDPOINTS[family][..]), 1..3),
        (ready, condition(), condition()),
        node,
        prop::option::weighted(hinted, hints()),
    )
        .prop_map(|(addresses, (ready, serving, terminating), node, hints)| {
            json!({
                "addresses": addresses, "nodeName": node, "hints": hints,
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            })
        })
}

fn slice_port() -> impl Strategy<Value = Value> {
    let name = mostly(&["", "http"], &["-", "dns"]);
    (name, protocol(), prop::option::weighted(0.9, number())).prop_map(
        |(name, protocol, port)| json!({"name": name, "protocol": protocol, "port": port}),
    )
}

fn slice() -> impl Strategy<Value = TestObject> {
    let families = select(vec!["IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "FQDN"]);
    let endpoints = (families, select(vec![0.01, 0.5, 0.99])).prop_flat_map(|(family, hinted)| {
        let endpoint = endpoint(usize::from(family == "IPv6"), hinted);
        (Just(family), prop::collection::vec(endpoint, 0..8))
    });
    let ports = prop::collection::vec(slice_port(), 0..6);
    (metadata(&["s1", "s2", "s3", "s4"]), ports, endpoints).prop_map(
        |(metadata, ports, (family, endpoints))| {
            let object = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": metadata, "addressType": family,
                "ports": ports, "endpoints": endpoints,
            });
            read(TestObject::Slice, object)
        },
    )
}

fn node() -> impl Strategy<Value = TestObject> {
    let zone = words(&["z1", "z2", "", "-"]);
    (select(vec!["node-a", "node-b"]), zone).prop_map(|(name, zone)| {
        let labels = match zone {
            Value::Null => json!({}),
            zone => json!({"topology.kubernetes.io/zone": zone}),
        };
        read(
            TestObject::Node,
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            }),
        )
    })
}

/// Reads an object of a kind.
pub fn read<T: serde::de::DeserializeOwned>(
    kind: fn(Box<T>) -> TestObject,
    object: Value,
) -> TestObject {
    kind(Box::new(serde_json::from_value(object).unwrap()))
}

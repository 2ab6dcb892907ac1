//! How long a node needs for 100,000 services with a million endpoints, and for one change among them.
//!
//! `cargo test --release -p dormouse-agent-services --test scale -- --ignored --nocapture`
#![expect(clippy::unwrap_used, reason = "a test's own objects are readable")]

use std::time::Instant;

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{Node, NodeAddresses, NodePortAddresses, Services, Strictness};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

const SERVICES: u32 = 100_000;
const ENDPOINTS_PER_SERVICE: u32 = 10;
const CHANGES: u32 = 10_000;

fn service(index: u32) -> Service {
    let (high, low) = (index >> 16, index & 0xffff);
    let cluster_ip = format!("fd00:172:30::{high:x}:{low:x}");
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("s{index}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
            "ipFamilies": ["IPv6"], "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    serde_json::from_value(object).unwrap()
}

fn slice(index: u32, version: u32) -> EndpointSlice {
    let endpoint = |number: u32| {
        let host = index * ENDPOINTS_PER_SERVICE + number;
        let (high, low) = (host >> 16, (host + version) & 0xffff);
        let address = format!("fd00:10:244::{high:x}:{low:x}");
        json!({"addresses": [address], "nodeName": "node-b", "conditions": {"ready": true}})
    };
    let endpoints: Vec<_> = (0..ENDPOINTS_PER_SERVICE).map(endpoint).collect();
    let name = format!("s{index}");
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv6", "endpoints": endpoints,
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
    });
    serde_json::from_value(object).unwrap()
}

#[test]
#[ignore = "needs a release build and a gigabyte for the objects"]
fn a_change_among_a_hundred_thousand_services_takes_microseconds() {
    let node = Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: Vec::new(),
            local: Vec::new(),
        },
        pod_ranges: Vec::new(),
        service_ranges: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    let objects: Vec<_> = (0..SERVICES)
        .map(|index| (service(index), slice(index, 0)))
        .collect();
    let mut services = Services::new(node, Strictness::Ours);
    let start = Instant::now();
    for (service, slice) in &objects {
        services.apply(&Event::Applied(Object::Service(service)));
        services.apply(&Event::Applied(Object::EndpointSlice(slice)));
    }
    let changes = services.sync();
    println!("{SERVICES} services from nothing: {:?}", start.elapsed());
    assert_eq!(changes.ports.len(), SERVICES as usize);
    let slices: Vec<_> = (0..CHANGES).map(|index| slice(index * 7, 1)).collect();
    let mut took: Vec<_> = slices
        .iter()
        .map(|slice| {
            let start = Instant::now();
            services.apply(&Event::Applied(Object::EndpointSlice(slice)));
            assert_eq!(services.sync().ports.len(), 1);
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    let (half, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("one change: p50 {half:?}, p99 {p99:?}");
}

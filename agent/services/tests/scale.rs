//! Time of a node for 100,000 services with a million endpoints, and for one change among them.
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

/// What all of this may take of the memory of a node: an agent, which has maps and buffers besides, has 150 MB.
const MEMORY_MAX_MB: u64 = 100;

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

fn node() -> Node {
    Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: Vec::new(),
            local: Vec::new(),
        },
        pod_ranges: Vec::new(),
        service_ranges: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    }
}

/// The memory of this process that is no file's, in MB.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("RssAnon")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes / 1_024
}

/// An agent keeps no objects. Here one service's are there at a time, so that what is left is what is remembered; alone
/// in its process, for what others freed would be used again and not be counted.
#[test]
#[ignore = "needs a release build and a process of its own"]
fn a_hundred_thousand_services_are_remembered_in_little_memory() {
    let before_mb = resident_mb();
    let mut services = Services::new(node(), Strictness::KubeProxy);
    for index in 0..SERVICES {
        services.apply(&Event::Applied(Object::Service(&service(index))));
        services.apply(&Event::Applied(Object::EndpointSlice(&slice(index, 0))));
    }
    let applied_mb = resident_mb() - before_mb;
    assert_eq!(services.sync().ports.len(), SERVICES as usize);
    let remembered_mb = resident_mb() - before_mb;
    println!("{SERVICES} services: {applied_mb} MB applied, {remembered_mb} MB in force");
    assert!(remembered_mb <= MEMORY_MAX_MB, "{remembered_mb} MB");
}

#[test]
#[ignore = "needs a release build and a gigabyte for the objects"]
fn a_change_among_a_hundred_thousand_services_takes_microseconds() {
    let objects: Vec<_> = (0..SERVICES)
        .map(|index| (service(index), slice(index, 0)))
        .collect();
    let mut services = Services::new(node(), Strictness::KubeProxy);
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

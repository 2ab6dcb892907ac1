//! Time to program 100,000 services with a million backends, and one change among them.
//!
//! `cargo test --release -p dormouse-agent services::tests::scale -- --ignored --nocapture`

use std::time::{Duration, Instant};

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{Node, Prefix, Services, Strictness};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::bench::{Bench, node};

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

/// Endpoints on 10,000 nodes, each with a /96 of its own.
fn slice(index: u32, version: u32) -> EndpointSlice {
    let endpoint = |number: u32| {
        let host = index * ENDPOINTS_PER_SERVICE + number + version * 1_000_003;
        let address = format!(
            "fd00:10:{:x}::{:x}:{:x}",
            host % 10_000,
            host >> 16,
            host & 0xffff
        );
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

fn large(range: &str) -> Node {
    Node {
        service_ranges: vec![Prefix::parse(range).unwrap()],
        ..node()
    }
}

/// Resident memory without the maps, in MB.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon"))
        .unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() / 1_024
}

fn translate(
    services: &mut Services,
    objects: &[(Service, EndpointSlice)],
) -> super::super::Changes {
    for (service, slice) in objects {
        services.apply(&Event::Applied(Object::Service(service)));
        services.apply(&Event::Applied(Object::EndpointSlice(slice)));
    }
    services.sync()
}

#[test]
#[ignore = "needs a release build and a gigabyte for the objects"]
fn a_hundred_thousand_services_are_programmed_in_a_second() {
    measure("fd00:172:30::/108", SERVICES);
}

#[test]
#[ignore = "needs a release build and half a gigabyte for the objects"]
fn fifty_thousand_services_with_several_ports_are_programmed_in_a_second() {
    measure("fd00:99::/64", SERVICES / 2);
}

fn measure(range: &str, services: u32) {
    let objects: Vec<_> = (0..services)
        .map(|index| (service(index), slice(index, 0)))
        .collect();
    let before_mb = resident_mb();
    let mut bench = Bench::in_cluster(large(range), Strictness::KubeProxy);
    let mut start = Instant::now();
    let changes = translate(&mut bench.services, &objects);
    println!("{services} services; direct slots for {range}");
    println!("  translated:        {:?}", start.elapsed());
    let translated_mb = resident_mb();
    let serve = Instant::now();
    assert!(bench.serve_changes(&changes).shed.is_empty());
    println!("  put into the maps: {:?}", serve.elapsed());
    println!("  all together:      {:?}", start.elapsed());
    drop(changes);
    let all_mb = resident_mb();
    println!(
        "  memory: {} MB, of that the maps' side {} MB",
        all_mb - before_mb,
        all_mb - translated_mb
    );
    start = Instant::now();
    bench.restart_empty();
    println!("  read by another:   {:?}", start.elapsed());
    let changes = translate(&mut bench.services, &objects);
    assert!(bench.serve_changes(&changes).shed.is_empty());
    println!("  served by another: {:?}", start.elapsed());
    bench.settle();
    println!("  settled:           {:?}", start.elapsed());
    let slices: Vec<_> = (0..CHANGES)
        .map(|index| slice(index * 5 % services, 1))
        .collect();
    let mut took: Vec<Duration> = slices
        .iter()
        .map(|slice| {
            let start = Instant::now();
            bench
                .services
                .apply(&Event::Applied(Object::EndpointSlice(slice)));
            assert!(bench.serve().shed.is_empty());
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    let (half, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!(
        "  one change:        p50 {half:?}, p99 {p99:?}, worst {:?}",
        took[took.len() - 1]
    );
}

//! A wake, a pod and a scrape while Services are being programmed: none waits for the sync.

use std::net::Ipv4Addr;
use std::thread;

use dormouse_agent_datapath::{ClusterFacts, Datapath, PodEntry};
use dormouse_agent_services::{Node, NodeAddresses, NodePortAddresses, Prefix};
use dormouse_agent_services::{Services, Strictness};
use dormouse_agent_services_samples::recorded;
use dormouse_rig::address::{FAR_POD, NODE, POD};
use dormouse_rig::wait;
use serde_json::{Value, json};

use super::node::{VIP_INDEX, serving, with_node};

/// Services of the first sync; each one that ends before the calls is followed by one twice as large.
const SERVICES: u32 = 1_000;
/// The largest sync, many times longer than all calls together.
const SERVICES_MAX: u32 = 32_000;

#[test]
fn nothing_but_services_waits_for_a_sync() {
    with_node(|node| {
        let datapath = node.open();
        let cluster = cluster();
        let facts = ClusterFacts::new(&cluster);
        datapath.services.set_cluster(&facts).unwrap();
        let mut services = Services::new(cluster, Strictness::KubeProxy);
        let mut count = SERVICES;
        while !outpaces_a_sync(&datapath, &mut services, count) {
            count *= 2;
            assert!(count <= SERVICES_MAX, "the calls waited for every sync");
        }
    });
}

/// Adds so many services, and makes the calls once their sync has begun. Whether they returned before its end.
fn outpaces_a_sync(datapath: &Datapath, services: &mut Services, count: u32) -> bool {
    // The services of earlier syncs are numbered from 1,000 to here.
    for number in count..2 * count {
        for object in [service(number), slice(number)] {
            recorded::apply_object(services, true, &object);
        }
    }
    let changes = services.sync();
    let before = backends(datapath);
    thread::scope(|scope| {
        let sync = scope.spawn(|| datapath.services.serve(services, &changes).unwrap());
        wait("the sync to begin", || backends(datapath) > before);
        call(datapath);
        !sync.is_finished()
    })
}

/// What a wake, an ADD, a DEL, a scrape and the node loop call.
fn call(datapath: &Datapath) {
    datapath.apps.publish(&serving(&[POD])).unwrap();
    datapath.apps.counts();
    datapath.apps.expire_idle(0, 0).unwrap();
    datapath.apps.grant(u64::MAX);
    datapath.grace();
    let pod = PodEntry {
        address: FAR_POD,
        address4: None,
        // The loopback: a link to attach to.
        ifindex: 1,
        mac: [2, 0, 0, 0, 0, 8],
        direct: true,
    };
    datapath.pods.add(pod).unwrap();
    datapath.pods.remove(FAR_POD).unwrap();
    assert!(!datapath.stats().is_empty());
    assert_eq!(datapath.apps.followed(), [VIP_INDEX]);
    datapath.refresh_uplink().unwrap();
}

/// Used entries of the table of backends.
fn backends(datapath: &Datapath) -> usize {
    let fill = datapath.fill();
    let table = fill.iter().find(|(map, _, _)| *map == "backend");
    table.expect("the table of backends").1
}

fn cluster() -> Node {
    let range = |text| Prefix::parse(text).unwrap();
    Node {
        name: "node".to_owned(),
        addresses: NodeAddresses {
            primary: vec![NODE.into()],
            local: vec![NODE.into()],
        },
        pod_ranges: vec![range("10.244.0.0/16")],
        service_ranges: vec![range("172.30.0.0/16")],
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    }
}

/// An address of a range, by number.
fn at(range: [u8; 4], number: u32) -> String {
    Ipv4Addr::from_bits(u32::from_be_bytes(range) + number).to_string()
}

fn service(number: u32) -> Value {
    let address = at([172, 30, 0, 0], number);
    json!({
        "kind": "Service",
        "metadata": {"namespace": "default", "name": format!("s{number}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        },
    })
}

fn slice(number: u32) -> Value {
    json!({
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": format!("s{number}-1"),
            "labels": {"kubernetes.io/service-name": format!("s{number}")},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [at([10, 244, 0, 0], number)], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
    })
}

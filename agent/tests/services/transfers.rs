//! Bulk through a Service: long streams, and datagrams in fragments.

use std::time::Instant;

use dormouse_rig::client::{sized_udp, transfer};
use dormouse_rig::shared::{Lease, Shared};
use dormouse_rig::{binaries, wait};
use dormouse_world::{Process, Program};
use serde_json::{Value, json};

use crate::by_each_way;
use crate::checks::at;
use crate::cluster::{Cluster, DRIVEN, NODE_PORT, Origin, POD_PORT, SERVING, Serving};
use crate::manifests::{Service, service};

/// A stream's length in bytes, each way.
const STREAM_LEN: usize = 64 << 20;
/// A datagram's length in bytes: three fragments.
const DATAGRAM_LEN: usize = 4_000;
/// iperf3's own port: the VIP has the same, for its control connection names no other.
const IPERF_PORT: u16 = 5_201;
/// The VIPs of iperf3's servers on the client's node and on the other one.
const IPERF_NEAR: &str = "fd00:20::46";
const IPERF_AWAY: &str = "fd00:20::47";

/// A shared cluster with the services of this file, which tests only use.
fn cluster(shared: &'static Shared<Serving>) -> Lease<Serving> {
    let mut lease = shared.lease();
    let services = services(&lease.cluster);
    lease.cluster.ensure(&services);
    lease
}

fn services(cluster: &Cluster) -> Vec<Service> {
    let [a1, b1, a2] = [(0, 0), (0, 1), (1, 0)].map(|(node, pod)| [cluster.end(node, pod)]);
    let hosts = [0, 1].map(|node| cluster.nodes[node].ends.clone());
    let local = json!({"externalTrafficPolicy": "Local", "externalIPs": ["fd00:30::43"]});
    let iperf = |name: &str, ip: &str| service(name, &[ip], IPERF_PORT).port(IPERF_PORT);
    vec![
        service("bulk-near", &["fd00:20::41"], POD_PORT).to(&b1),
        service("bulk-away", &["fd00:20::42"], POD_PORT)
            .to(&a2)
            .with(&json!({"externalIPs": ["fd00:30::42"]})),
        service("bulk-local", &["fd00:20::43"], POD_PORT)
            .node_port(30_043)
            .to(&a1)
            .with(&local),
        service("bulk-here", &["fd00:20::44", "10.96.0.44"], NODE_PORT)
            .to(&hosts[0])
            .with(&json!({"externalIPs": ["203.0.113.44", "fd00:30::44"]})),
        service("bulk-there", &["fd00:20::45", "10.96.0.45"], NODE_PORT)
            .to(&hosts[1])
            .with(&json!({"externalIPs": ["203.0.113.45", "fd00:30::45"]})),
        iperf("iperf-near", IPERF_NEAR).to(&b1),
        iperf("iperf-away", IPERF_AWAY).to(&a2),
    ]
}

#[test]
fn segments_are_as_large_on_the_link_as_the_kernel_makes_them() {
    let it = cluster(&SERVING);
    for sockets in [&it.cluster.pod(0, 0).bare, &it.cluster.client] {
        let features = sockets.run("ethtool", "-k eth0");
        assert!(
            features.contains("tcp-segmentation-offload: on"),
            "{features}"
        );
    }
}

fn check_stream(from: Origin, ip: &str) {
    stream(&cluster(&SERVING), from, ip);
}

fn check_driven_stream(from: Origin, ip: &str) {
    stream(&cluster(&DRIVEN), from, ip);
}

fn stream(it: &Serving, from: Origin, ip: &str) {
    let began = Instant::now();
    transfer(it.cluster.sockets(from), at(ip, 80), STREAM_LEN).unwrap();
    let mebibytes = 2 * (STREAM_LEN >> 20);
    let took_ms = began.elapsed().as_millis();
    eprintln!("  {} MiB/s", mebibytes as u128 * 1_000 / took_ms);
}

fn check_fragments(from: Origin, ip: &str) {
    fragments(&cluster(&SERVING), from, ip);
}

fn check_driven_fragments(from: Origin, ip: &str) {
    fragments(&cluster(&DRIVEN), from, ip);
}

fn fragments(it: &Serving, from: Origin, ip: &str) {
    for _ in 0..8 {
        let answer = sized_udp(it.cluster.sockets(from), at(ip, 80), DATAGRAM_LEN).unwrap();
        assert_eq!(answer.from, at(ip, 80));
    }
}

by_each_way! { streams_of_64_mib_go_both_ways_at_once, check_stream; datagrams_in_fragments_go_both_ways, check_fragments => {
    from_a_pods_socket_on_the_same_node(Origin::PodSocket, "fd00:20::41");
    from_a_pods_socket_to_the_other_node(Origin::PodSocket, "fd00:20::42");
    by_a_pods_packets_on_the_same_node(Origin::PodPackets, "fd00:20::41");
    by_a_pods_packets_to_the_other_node(Origin::PodPackets, "fd00:20::42");
    from_outside_to_the_other_node(Origin::Outside, "fd00:30::42");
    from_outside_by_the_policy_local(Origin::Outside, "fd00:30::43");
    from_outside_to_the_node_itself_by_ipv4(Origin::Outside, "203.0.113.44");
    from_the_nodes_socket_to_the_other_node_by_ipv4(Origin::NodeSocket, "10.96.0.45");
} }

by_each_way! { streams_of_64_mib_pass_the_drivers_program, check_driven_stream; datagrams_in_fragments_pass_the_drivers_program, check_driven_fragments => {
    from_outside_to_the_other_node(Origin::Outside, "fd00:30::42");
    from_outside_by_the_policy_local(Origin::Outside, "fd00:30::43");
    from_outside_to_the_node_itself_by_ipv4(Origin::Outside, "203.0.113.44");
    from_outside_to_the_other_node_by_ipv4(Origin::Outside, "203.0.113.45");
} }

/// Where iperf3's server is, seen from the first pod.
#[derive(Clone, Copy)]
enum Server {
    SameNode,
    OtherNode,
}

/// Starts iperf3's server in a pod and waits until it listens.
fn iperf_server(cluster: &Cluster, server: Server, log: &str) -> Process {
    let pod = match server {
        Server::SameNode => cluster.pod(0, 1),
        Server::OtherNode => cluster.pod(1, 0),
    };
    let program = Program::new(binaries::installed("iperf3"))
        .args(["-s", "-p", &IPERF_PORT.to_string(), "--forceflush"])
        .log(pod.host.log(log));
    let server = Process::start(&pod.host, &program).unwrap();
    // It serves one client at a time, so no connection may ask whether it listens.
    wait("iperf3 to listen", || {
        server.output().contains("Server listening")
    });
    server
}

/// Measures for a second, by sockets or from outside by packets; `reverse` has the server send.
fn check_iperf(server: Server, from: Origin, reverse: bool) {
    let it = cluster(&SERVING);
    let ip = match server {
        Server::SameNode => IPERF_NEAR,
        Server::OtherNode => IPERF_AWAY,
    };
    // Other measurements run on the same hosts.
    let log = |end: &str| format!("iperf-{end}-{ip}-{from:?}-{reverse}");
    let _server = iperf_server(&it.cluster, server, &log("server"));
    let host = match from {
        Origin::PodSocket => &it.cluster.pod(0, 0).host,
        _ => it.cluster.world.client(),
    };
    let program = Program::new(binaries::installed("iperf3"))
        .args(["-c", ip, "-p", &IPERF_PORT.to_string(), "-J", "-t", "1"])
        .args(reverse.then_some("-R"))
        .log(host.log(&log("client")));
    let mut client = Process::start(host, &program).unwrap();
    wait("iperf3 to end", || client.ended().is_some());
    let measured: Value = serde_json::from_str(&client.output()).unwrap();
    let bits = measured["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.unwrap_or_else(|| panic!("{measured}"));
    eprintln!("  {:.1} Gbit/s", bits / 1e9);
    assert!(bits > 1e6, "{bits}");
}

by_each_way! { iperf3_measures, check_iperf:
    a_pods_socket_to_the_same_node(Server::SameNode, Origin::PodSocket, false);
    a_pods_socket_from_the_same_node(Server::SameNode, Origin::PodSocket, true);
    outside_packets_to_the_first_node(Server::SameNode, Origin::Outside, false);
    outside_packets_from_the_first_node(Server::SameNode, Origin::Outside, true);
    a_pods_socket_to_the_other_node(Server::OtherNode, Origin::PodSocket, false);
    a_pods_socket_from_the_other_node(Server::OtherNode, Origin::PodSocket, true);
    outside_packets_to_the_other_node(Server::OtherNode, Origin::Outside, false);
    outside_packets_from_the_other_node(Server::OtherNode, Origin::Outside, true);
}

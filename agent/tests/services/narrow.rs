//! Paths with a link of a smaller MTU: senders learn it by ICMP errors that the data path translates.

use dormouse_rig::client::transfer;
use dormouse_rig::shared::Shared;
use serde_json::json;

use crate::by_each_way;
use crate::checks::at;
use crate::cluster::{Cluster, NODE_PORT, Origin, POD_PORT, Serving};
use crate::manifests::service;
use crate::uplink::Uplink;

/// A stream's length in bytes: many packets, of every size up to the largest that the kernel joins.
const STREAM_LEN: usize = 4 << 20;
/// The largest packet, in bytes, before the far host, and before the second node for packets by the router.
const NARROW: u16 = 1_400;

/// The cluster with narrow links.
static NARROWED: Shared<Serving> =
    Shared::built_by(|prefix| narrow(Serving::build_on(prefix, Uplink::Classifier)));

/// The same with the programs of the uplinks' drivers.
static DRIVEN: Shared<Serving> =
    Shared::built_by(|prefix| narrow(Serving::build_on(prefix, Uplink::Driver)));

fn narrow(mut serving: Serving) -> Serving {
    let cluster = &mut serving.cluster;
    let [a1, a2] = [(0, 0), (1, 0)].map(|(node, pod)| [cluster.end(node, pod)]);
    let hosts = [0, 1].map(|node| cluster.nodes[node].ends.clone());
    cluster.apply(&[
        service("away", &["fd00:20::42"], POD_PORT)
            .to(&a2)
            .with(&json!({"externalIPs": ["fd00:30::42"]})),
        service("local", &["fd00:20::43"], POD_PORT)
            .node_port(30_043)
            .to(&a1)
            .with(&json!({"externalTrafficPolicy": "Local", "externalIPs": ["fd00:30::43"]})),
        service("here", &["fd00:20::44", "10.96.0.44"], NODE_PORT)
            .to(&hosts[0])
            .with(&json!({"externalIPs": ["203.0.113.44", "fd00:30::44"]})),
        service("there", &["fd00:20::45", "10.96.0.45"], NODE_PORT)
            .to(&hosts[1])
            .with(&json!({"externalIPs": ["203.0.113.45", "fd00:30::45"]})),
    ]);
    constrict(cluster);
    serving
}

fn constrict(cluster: &Cluster) {
    let (router, second) = (&cluster.router, &cluster.nodes[1]);
    let prefix = format!("{}/96", second.host.prefix.unwrap());
    for route in [
        format!("-6 route add 2001:db8:fa::2/128 dev eth1 mtu lock {NARROW}"),
        format!("route add 198.51.100.2/32 dev eth1 mtu lock {NARROW}"),
        format!("-6 route add {prefix} dev eth0 mtu lock {NARROW}"),
    ] {
        router.run("ip", &route);
    }
    let by = cluster.world.control().address;
    let first = &cluster.nodes[0].sockets;
    first.run("ip", &format!("-6 route add {prefix} via {by}"));
}

/// The errors come to the node, which translates them for the sender.
fn check_packets(from: Origin, ip: &str) {
    check(&NARROWED.lease().cluster, from, ip);
}

fn check_driver(from: Origin, ip: &str) {
    check(&DRIVEN.lease().cluster, from, ip);
}

fn check(cluster: &Cluster, from: Origin, ip: &str) {
    forget_mtu(cluster);
    let before = cluster.counted(0, "error_translated");
    transfer(cluster.sockets(from), at(ip, 80), STREAM_LEN).unwrap();
    let errors = cluster.counted(0, "error_translated") - before;
    assert!(errors > 0, "no packet was too large");
}

/// The errors come to the socket, whose packets name the backend already.
fn check_socket(from: Origin, ip: &str) {
    let it = NARROWED.lease();
    let cluster = &it.cluster;
    forget_mtu(cluster);
    transfer(cluster.sockets(from), at(ip, 80), STREAM_LEN).unwrap();
}

/// Has all senders forget what a test before has taught them.
fn forget_mtu(cluster: &Cluster) {
    let pods = cluster.nodes.iter().flat_map(|node| &node.pods);
    let pods = pods.map(|pod| &pod.bare);
    let nodes = cluster.nodes.iter().map(|node| &node.sockets);
    for sockets in pods.chain(nodes).chain([&cluster.client, &cluster.far]) {
        for family in ["-6", "-4"] {
            sockets.run("ip", &format!("{family} route flush cache"));
        }
    }
}

by_each_way! { a_sender_learns_the_path_mtu, check_packets:
    of_a_remote_pod_masqueraded_from_outside(Origin::Far, "fd00:30::42");
    of_a_local_pod_from_outside_by_the_policy_local(Origin::Far, "fd00:30::43");
    of_the_node_itself_from_outside(Origin::Far, "fd00:30::44");
    of_the_other_node_from_outside(Origin::Far, "fd00:30::45");
    of_the_node_itself_from_outside_by_ipv4(Origin::Far, "203.0.113.44");
    of_the_other_node_from_outside_by_ipv4(Origin::Far, "203.0.113.45");
    of_a_remote_pod_by_a_pods_packets(Origin::PodPackets, "fd00:20::42");
}

by_each_way! { a_sender_learns_the_path_mtu_with_the_drivers_program, check_driver:
    of_a_remote_pod_masqueraded_from_outside(Origin::Far, "fd00:30::42");
    of_a_local_pod_from_outside_by_the_policy_local(Origin::Far, "fd00:30::43");
    of_the_node_itself_from_outside(Origin::Far, "fd00:30::44");
    of_the_other_node_from_outside(Origin::Far, "fd00:30::45");
    of_the_node_itself_from_outside_by_ipv4(Origin::Far, "203.0.113.44");
    of_the_other_node_from_outside_by_ipv4(Origin::Far, "203.0.113.45");
}

by_each_way! { a_socket_learns_the_path_mtu, check_socket:
    of_a_remote_pod_in_a_pod(Origin::PodSocket, "fd00:20::42");
    of_a_remote_pod_on_the_node(Origin::NodeSocket, "fd00:20::42");
}

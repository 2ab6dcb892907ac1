//! Frames for other hosts, which an uplink receives where a switch floods its ports, and in promiscuous mode.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use dormouse_rig::frame::{HEADERS, Mac, SYN, mac, tcp};
use dormouse_rig::{Sockets, Tap};
use serde_json::json;

use crate::checks::at;
use crate::cluster::{CLIENT, POD_PORT, SERVING};
use crate::manifests::service;

const NODE_PORT: u16 = 30_130;
/// The address of no host: a switch floods frames to it.
const NOBODY: Mac = [2, 0, 0, 0, 0xee, 1];
/// The client's ports of a frame for another host, and of the one for the node after it.
const FOR_ANOTHER: u16 = 50_001;
const FOR_NODE: u16 = 50_002;
const INTERFACE: &str = "eth0";
/// The offset of TCP's flags.
const FLAGS: usize = 13;
const MOMENT: Duration = Duration::from_millis(100);

/// All nodes have the VIPs: a node that took another's frames would answer them a second time.
#[test]
fn a_frame_for_another_host_is_not_delivered_to_a_backend() {
    let mut it = SERVING.lease();
    let cluster = &mut it.cluster;
    let local = json!({"externalTrafficPolicy": "Local"});
    let end = cluster.end(0, 0);
    let ends = std::slice::from_ref(&end);
    cluster.apply(&[service("flooded", &["fd00:20::7e"], POD_PORT)
        .node_port(NODE_PORT)
        .with(&local)
        .to(ends)]);
    let IpAddr::V6(node) = cluster.nodes[0].address() else {
        panic!("a node has an IPv6 address");
    };
    let node_mac = link_layer_address(&cluster.nodes[0].sockets);
    let client_mac = link_layer_address(&cluster.client);
    let on = |netns: &Path| Tap::on(netns, INTERFACE);
    let client_link = on(&cluster.world.client().netns);
    let pod_link = on(&cluster.pod(0, 0).host.netns);
    let client: Ipv6Addr = CLIENT.parse().unwrap();
    for (port, to) in [(FOR_ANOTHER, NOBODY), (FOR_NODE, node_mac)] {
        let mut frame = tcp((client, port), (node, NODE_PORT), SYN);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&client_mac);
        client_link.send(&frame);
    }
    let arrived = pod_link.several(1, MOMENT, |frame| {
        let port = u16::from_be_bytes([*frame.get(HEADERS)?, *frame.get(HEADERS + 1)?]);
        // The client resets what it has not begun.
        let begins = *frame.get(HEADERS + FLAGS)? == SYN;
        (begins && frame[22..38] == client.octets()).then_some(port)
    });
    assert_eq!(
        arrived,
        [FOR_NODE],
        "to {}",
        at(&node.to_string(), NODE_PORT)
    );
}

fn link_layer_address(sockets: &Sockets) -> Mac {
    let shown = sockets.run("ip", &format!("-br link show dev {INTERFACE}"));
    mac(shown.split_whitespace().nth(2).unwrap())
}

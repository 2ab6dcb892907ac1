//! Packets between pods: those that are redirected past the host's forwarding, and those that are left to it unchanged.

use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Datapath, Hook, PodEntry, Run};
use dormouse_agent_inspect::frame::Opening;
use dormouse_agent_services::{Node, NodeAddresses, NodePortAddresses, Prefix};

use dormouse_rig::address::{FAR_POD, NODE, POD};
use dormouse_rig::frame::{ICMPV6, MACS, SYN, SYN_ACK, ipv6, ones_sum, seal, tcp};
use dormouse_rig::ip;
use dormouse_rig::tcx::{NEXT, REDIRECT};

use crate::node::{self, with_node};

/// The test run's device is the loopback device of the namespace: this pod's link, for a test.
const LOOPBACK: u32 = 1;
pub(super) const SENDER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x20);
pub(super) const NEIGHBOR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x21);
const LIMITED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x22);
/// Pods of another node whose neighbour entry is missing, and whose route has a smaller MTU.
const UNKNOWN_POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 0, 0x11);
const NARROW_POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 0, 0x12);
/// No pod.
const STRANGER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 9);
pub(super) const SENDER4: [u8; 4] = [10, 1, 1, 20];
pub(super) const NEIGHBOR4: [u8; 4] = [10, 1, 1, 21];
/// The IPv4 address of [`FAR_POD`].
pub(super) const FAR4: [u8; 4] = [10, 1, 2, 16];
const POD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 8];
/// Where IPv6's hop limit and IPv4's time to live lie in a frame.
const HOPS6: usize = 21;
const HOPS4: usize = 22;

#[test]
fn packets_between_pods_are_redirected_past_the_hosts_forwarding() {
    with_node(|node| {
        let datapath = forwarding(node);
        let sent = tcp((SENDER, 40_000), (FAR_POD, 80), SYN);
        assert_hopped(&leave(&datapath, &sent), &sent);
        let sent = tcp((SENDER, 40_000), (NEIGHBOR, 80), SYN);
        assert_hopped(&leave(&datapath, &sent), &for_pod(&sent));
        let sent = arriving(tcp((FAR_POD, 80), (NEIGHBOR, 40_000), SYN));
        assert_hopped(&arrive(&datapath, &sent), &for_pod(&sent));
        // The host has not seen its SYN: for conntrack the SYN-ACK alone is invalid.
        let sent = tcp((SENDER, 40_000), (UNKNOWN_POD, 80), SYN_ACK);
        assert_hopped(&leave(&datapath, &sent), &sent);
        for protocol in [6, 17, 132] {
            let opening = |source: [u8; 4], target: [u8; 4]| Opening {
                source: (source, 40_000).into(),
                target: (target, 80).into(),
                protocol,
            };
            let sent = opening(SENDER4, FAR4).frame();
            assert_hopped4(&leave(&datapath, &sent), &sent);
            let sent = opening(SENDER4, NEIGHBOR4).frame();
            assert_hopped4(&leave(&datapath, &sent), &for_pod(&sent));
            let sent = arriving(opening(FAR4, NEIGHBOR4).frame());
            assert_hopped4(&arrive(&datapath, &sent), &for_pod(&sent));
        }
    });
}

#[test]
fn icmp_errors_about_packets_between_pods_are_redirected_too() {
    with_node(|node| {
        let datapath = forwarding(node);
        let about = |from, source, target| {
            let failed = tcp((source, 40_000), (target, 80), SYN);
            let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0];
            message.extend(&failed[14..]);
            seal(ipv6(MACS, (ICMPV6, 64), (from, source), &message), 2)
        };
        // The error comes from a router, which is no pod.
        let sent = arriving(about(STRANGER, NEIGHBOR, FAR_POD));
        assert_hopped(&arrive(&datapath, &sent), &for_pod(&sent));
        let sent = about(SENDER, FAR_POD, SENDER);
        assert_hopped(&leave(&datapath, &sent), &sent);
        let sent = arriving(about(STRANGER, NEIGHBOR, STRANGER));
        assert_untouched(&arrive(&datapath, &sent), &sent, "about a packet to no pod");
    });
}

#[test]
fn packets_of_a_pod_with_a_limit_are_left_to_the_host_both_ways() {
    with_node(|node| {
        let datapath = forwarding(node);
        datapath.pods.add(pod(SENDER, LOOPBACK, false)).unwrap();
        let sent = tcp((SENDER, 40_000), (FAR_POD, 80), SYN);
        assert_untouched(&leave(&datapath, &sent), &sent, "from a pod with a limit");
        datapath.pods.add(pod(SENDER, LOOPBACK, true)).unwrap();
        assert_hopped(&leave(&datapath, &sent), &sent);
    });
}

#[test]
fn packets_that_are_not_plain_are_left_to_the_kernel() {
    with_node(|node| {
        let datapath = forwarding(node);
        let to = |target| tcp((SENDER, 40_000), (target, 80), SYN);
        let good = to(FAR_POD);
        let with = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        for (why, sent) in [
            ("its hops run out here", with(HOPS6, 1)),
            ("for a group", with(0, 0x33)),
            (
                "a destination option",
                optional(60, &[6, 0, 1, 4, 0, 0, 0, 0]),
            ),
            ("a fragment", optional(44, &[6, 0, 0, 1, 0, 0, 0, 7])),
            ("to no pod", to(STRANGER)),
            ("no neighbour", to(UNKNOWN_POD)),
            ("larger than its route takes", long(NARROW_POD)),
            ("to a pod with a limit", to(LIMITED)),
            ("to a pod whose link is gone", long(POD)),
            ("larger than the pod's link takes", long(NEIGHBOR)),
        ] {
            assert_untouched(&leave(&datapath, &sent), &sent, why);
        }
        let from = |source| arriving(tcp((source, 40_000), (NEIGHBOR, 80), SYN));
        let mut for_group = from(FAR_POD);
        for_group[0] = 0x33;
        for (why, sent) in [("from no pod", from(STRANGER)), ("for a group", for_group)] {
            assert_untouched(&arrive(&datapath, &sent), &sent, why);
        }
        ip("route add unreachable 2001:db8:d0:0:0:2::/96");
        assert_untouched(&leave(&datapath, &good), &good, "no route");
        ip("route del unreachable 2001:db8:d0:0:0:2::/96");
        assert_hopped(&leave(&datapath, &good), &good);
        forward(false);
        assert_untouched(&leave(&datapath, &good), &good, "the host forwards nothing");
        forward(true);
        configure(&datapath, None);
        assert_untouched(&leave(&datapath, &good), &good, "not asked for");
        let sent = from(FAR_POD);
        assert_untouched(&arrive(&datapath, &sent), &sent, "not asked for");
    });
}

/// A data path that forwards, with pods here, and routes and neighbours for those of another node.
pub(super) fn forwarding(node: &node::Node) -> Datapath {
    ip("link add pods0 type bridge");
    ip("link set pods0 up");
    ip("link add pod0 type veth peer name inside0");
    ip("link set pod0 mtu 1280 up");
    ip("link set inside0 up");
    ip("address add 2001:db8:d0::1/64 dev eth0 nodad");
    ip("address add 10.1.2.1/24 dev eth0");
    ip("address add 10.1.1.1/24 dev pods0");
    ip(&format!(
        "route add {NARROW_POD}/128 dev eth0 mtu lock 1280"
    ));
    for neighbor in [
        FAR_POD.to_string(),
        NARROW_POD.to_string(),
        "10.1.2.16".to_owned(),
    ] {
        ip(&format!(
            "neighbour add {neighbor} lladdr 02:00:00:00:00:55 dev eth0 nud permanent"
        ));
    }
    forward(true);
    let datapath = node.open();
    let pod0 = nix::net::if_::if_nametoindex("pod0").unwrap();
    for (address, address4, ifindex, direct) in [
        (SENDER, Some(SENDER4), LOOPBACK, true),
        (NEIGHBOR, Some(NEIGHBOR4), pod0, true),
        (LIMITED, None, pod0, false),
    ] {
        let pod = PodEntry {
            address4: address4.map(Into::into),
            ..pod(address, ifindex, direct)
        };
        datapath.pods.add(pod).unwrap();
    }
    configure(&datapath, nix::net::if_::if_nametoindex("pods0").ok());
    datapath
}

fn pod(address: Ipv6Addr, ifindex: u32, direct: bool) -> PodEntry {
    PodEntry {
        address,
        address4: None,
        ifindex,
        mac: POD_MAC,
        direct,
    }
}

fn configure(datapath: &Datapath, forwarder: Option<u32>) {
    let ranges = ["2001:db8:d0::/48", "10.1.0.0/16"];
    let node = Node {
        name: "n1".to_owned(),
        addresses: NodeAddresses {
            primary: vec![NODE.into()],
            local: Vec::new(),
        },
        pod_ranges: ranges.map(|range| Prefix::parse(range).unwrap()).into(),
        service_ranges: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    datapath.facts.forward_by(forwarder, &node).unwrap();
}

fn forward(forwards: bool) {
    let value = if forwards { "1" } else { "0" };
    for name in ["ipv6/conf/all/forwarding", "ipv4/ip_forward"] {
        std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
    }
}

/// A frame for the link-layer address of the uplink, which here is the loopback device's.
fn arriving(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].fill(0);
    frame
}

/// The same frame for the pod's own link-layer address.
fn for_pod(frame: &[u8]) -> Vec<u8> {
    [&POD_MAC, &frame[6..]].concat()
}

/// A packet with one header before its TCP header.
fn optional(kind: u8, header: &[u8]) -> Vec<u8> {
    let plain = tcp((SENDER, 40_000), (FAR_POD, 80), SYN);
    let mut payload = [header, &plain[54..]].concat();
    // Fragments but the last have whole units of eight bytes (RFC 8200 4.5).
    payload.resize(payload.len().next_multiple_of(8), 0);
    ipv6(MACS, (kind, 64), (SENDER, FAR_POD), &payload)
}

/// A packet of 1,400 bytes.
fn long(target: Ipv6Addr) -> Vec<u8> {
    let plain = tcp((SENDER, 40_000), (target, 80), SYN);
    let mut payload = plain[54..].to_vec();
    payload.resize(1_400 - 40, 7);
    seal(ipv6(MACS, (6, 64), (SENDER, target), &payload), 16)
}

fn leave(datapath: &Datapath, frame: &[u8]) -> Run {
    datapath.programs.run(Hook::PodIn, frame).unwrap()
}

fn arrive(datapath: &Datapath, frame: &[u8]) -> Run {
    datapath.programs.run(Hook::UplinkIn, frame).unwrap()
}

/// Sent on as `expected`, but for one hop less.
#[track_caller]
fn assert_hopped(run: &Run, expected: &[u8]) {
    let mut expected = expected.to_vec();
    expected[HOPS6] -= 1;
    assert_sent(run, &expected);
}

/// The same of IPv4, whose header has a checksum (RFC 791 3.1).
#[track_caller]
fn assert_hopped4(run: &Run, expected: &[u8]) {
    let mut expected = expected.to_vec();
    expected[HOPS4] -= 1;
    expected[24..26].fill(0);
    let sum = !ones_sum(&expected[14..34]);
    expected[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_sent(run, &expected);
}

#[track_caller]
fn assert_sent(run: &Run, expected: &[u8]) {
    assert_eq!(run.verdict, REDIRECT);
    assert!(run.frame == expected, "{:?} {expected:?}", run.frame);
}

#[track_caller]
fn assert_untouched(run: &Run, sent: &[u8], why: &str) {
    assert_eq!(run.verdict, NEXT, "{why}");
    assert!(run.frame == sent, "{why}: it was changed");
}

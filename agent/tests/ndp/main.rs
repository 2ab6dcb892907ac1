//! Neighbour discovery of the real agent on its uplink's link: which addresses it answers for, what it announces when, and
//! how it works with switches that snoop and with each kind of network.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

mod driver;
mod flood;
mod frame;
mod networks;
mod node;
mod switch;

use std::net::Ipv6Addr;
use std::time::Duration;

use dormouse_rig::address::PREFIX;
use dormouse_rig::frame::mac;
use dormouse_rig::{Netns, Tap, dial, wait};
use frame::{ALL_NODES, Advertisement, Answers as _, Asker, advertisement, redirect, solicited};
use node::{Flags, Node, UPLINK};

const NODE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xa);
const NODE_MAC: &str = "02:00:00:00:00:0a";
const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xfe);
const ROUTER_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
const ROUTER_MAC: &str = "02:00:00:00:00:fe";
/// The router's interface to the nodes.
const DOWNLINK: &str = "r0";
/// In the node's prefix, and no pod's.
const FREE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x99);
/// A pod is announced so often.
const TIMES: usize = 3;
/// Time for one announcement too many: they are a second apart.
const ONE_MORE: Duration = Duration::from_millis(1_300);

/// A namespace with its loopback device up.
fn host(role: &str) -> Netns {
    let netns = Netns::new(role);
    netns.ip("link set lo up");
    netns
}

/// A router and a node on one cable, with link-local addresses only. A host that forwards sets the router
/// flag, and is no default router otherwise.
fn cabled() -> (Netns, Netns) {
    let (router, node) = (host("router"), host("node"));
    router.set_sysctl("ipv6/conf/all/forwarding", "1");
    router.cable((DOWNLINK, ROUTER_MAC), &node, (UPLINK, NODE_MAC));
    router.ip(&format!(
        "address add {ROUTER_LOCAL}/64 dev {DOWNLINK} nodad"
    ));
    node.ip(&format!("address add fe80::a/64 dev {UPLINK} nodad"));
    (router, node)
}

/// A router that has the whole /64 on its link, pods and all, and a node without an agent yet.
fn on_link(profile: &'static str) -> (Netns, Node) {
    let (router, node) = cabled();
    router.ip(&format!("address add {ROUTER}/64 dev {DOWNLINK} nodad"));
    node.ip(&format!("address add {NODE}/64 dev {UPLINK} nodad"));
    let flags = Flags {
        profile,
        prefix: PREFIX,
        address: NODE,
    };
    (router, Node::new(node, flags))
}

fn router() -> Asker {
    Asker {
        mac: mac(ROUTER_MAC),
        address: ROUTER,
    }
}

/// A node's unsolicited advertisement for its pod.
fn announcement(pod: Ipv6Addr, at: &str) -> Advertisement {
    Advertisement {
        source_mac: mac(at),
        to_mac: [0x33, 0x33, 0, 0, 0, 1],
        from: pod,
        to: ALL_NODES,
        target: pod,
        is_solicited: false,
        overrides: true,
        is_router: false,
        target_mac: mac(at),
    }
}

/// Asks for one and then for a pod that exists: that one's answer comes first.
fn assert_silent(tap: &Tap, target: Ipv6Addr, witness: Ipv6Addr) {
    tap.send(&router().asks(target));
    tap.send(&router().asks(witness));
    assert_eq!(tap.answer().target, witness, "no answer for {target}");
}

#[test]
fn a_new_pod_is_announced_three_times_and_routers_learn_it() {
    let (router, mut node) = on_link("on-link");
    router.set_sysctl(&format!("ipv6/conf/{DOWNLINK}/accept_untracked_na"), "1");
    node.start();
    let tap = Tap::on(router.path(), DOWNLINK);
    let pod = node.add("a");
    let seen = tap.several(TIMES, ONE_MORE, advertisement);
    assert_eq!(seen.len(), TIMES, "{seen:?}");
    for seen in &seen {
        assert_eq!(*seen, announcement(pod.address, NODE_MAC));
    }
    assert_eq!(router.neighbor(pod.address).as_deref(), Some(NODE_MAC));
}

#[test]
fn pods_that_exist_are_answered_for_and_nothing_else() {
    let (outside, mut node) = on_link("on-link");
    node.start();
    let (a, b) = (node.add("a"), node.add("b"));
    assert_eq!(dial(&outside, &a.netns, a.address).unwrap(), ROUTER);
    assert_eq!(dial(&a.netns, &outside, ROUTER).unwrap(), a.address);
    assert_eq!(outside.neighbor(a.address).as_deref(), Some(NODE_MAC));

    let tap = Tap::on(outside.path(), DOWNLINK);
    let expected = Advertisement {
        to_mac: mac(ROUTER_MAC),
        to: ROUTER,
        is_solicited: true,
        ..announcement(a.address, NODE_MAC)
    };
    for question in [
        router().asks(a.address),
        router().probes(a.address, mac(NODE_MAC)),
    ] {
        tap.send(&question);
        assert_eq!(tap.answer(), expected);
    }
    assert_silent(&tap, FREE, a.address);
    let elsewhere = "2001:db8:d0:0:0:2:1:0".parse().unwrap();
    assert_silent(&tap, elsewhere, a.address);
    node.del("b");
    assert_silent(&tap, b.address, a.address);
}

#[test]
fn answers_name_the_uplinks_new_link_layer_address() {
    let (outside, mut node) = on_link("on-link");
    node.start();
    let pod = node.add("a");
    let tap = Tap::on(outside.path(), DOWNLINK);
    let new_mac = "02:00:00:00:00:1a";
    node.netns
        .ip(&format!("link set {UPLINK} address {new_mac}"));
    let announced = announcement(pod.address, new_mac);
    tap.until("the pod at its new place", |frame| {
        advertisement(frame).filter(|seen| *seen == announced)
    });
    tap.send(&router().asks(pod.address));
    let expected = Advertisement {
        to_mac: mac(ROUTER_MAC),
        to: ROUTER,
        is_solicited: true,
        ..announced
    };
    assert_eq!(tap.answer(), expected);
}

#[test]
fn an_uplink_that_is_recreated_is_followed() {
    let (outside, mut node) = on_link("on-link");
    node.start();
    let pod = node.add("a");
    assert_eq!(node.fault(), None);
    node.netns.ip(&format!("link set {UPLINK} down"));
    let why = node.fault().expect("pods cannot be reached");
    assert!(why.contains(&format!("ip link set {UPLINK} up")), "{why}");
    outside.ip(&format!("link delete {DOWNLINK}"));
    let why = node.fault().expect("pods cannot be reached");
    assert!(
        why.contains(&format!("there is no uplink `{UPLINK}`")),
        "{why}"
    );
    outside.cable((DOWNLINK, ROUTER_MAC), &node.netns, (UPLINK, NODE_MAC));
    outside.ip(&format!("address add {ROUTER}/64 dev {DOWNLINK} nodad"));
    node.netns
        .ip(&format!("address add {NODE}/64 dev {UPLINK} nodad"));
    let tap = Tap::on(outside.path(), DOWNLINK);
    let announced = announcement(pod.address, NODE_MAC);
    tap.until("the pod behind the new link", |frame| {
        advertisement(frame).filter(|seen| *seen == announced)
    });
    tap.send(&router().asks(pod.address));
    assert_eq!(tap.answer().target, pod.address);
    assert_eq!(node.fault(), None);
    let accept_ra = format!("ipv6/conf/{UPLINK}/accept_ra");
    wait("routers' advertisements to be accepted", || {
        node.netns.sysctl(&accept_ra) == "2"
    });
}

/// Both pods are behind one bridge, and the node takes every packet between them in hand: a pod that has a kernel of its own,
/// as in a virtual machine, may accept redirects.
#[test]
fn no_pod_is_redirected_to_another() {
    let (_outside, mut node) = on_link("on-link");
    node.start();
    let (a, b) = (node.add("a"), node.add("b"));
    assert_eq!(a.netns.sysctl("ipv6/conf/eth0/accept_redirects"), "0");
    let tap = Tap::on(a.netns.path(), "eth0");
    for _ in 0..3 {
        assert_eq!(dial(&a.netns, &b.netns, b.address).unwrap(), a.address);
    }
    let seen = tap.watch(Duration::from_millis(200), |frame| {
        redirect(frame).then(|| frame.to_vec())
    });
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn duplicate_address_detection_fails_for_a_pods_address() {
    let (outside, mut node) = on_link("on-link");
    node.start();
    let tap = Tap::on(outside.path(), DOWNLINK);
    let pod = node.add("a");
    let seen = tap.several(TIMES, ONE_MORE, advertisement);
    assert_eq!(seen.len(), TIMES, "{seen:?}");
    tap.send(&router().detects(pod.address));
    let answer = tap.until("an objection", advertisement);
    assert_eq!(answer, announcement(pod.address, NODE_MAC));

    let tried = |address: Ipv6Addr| {
        outside.ip(&format!("-6 address add {address}/128 dev {DOWNLINK}"));
        let mut state = String::new();
        wait("duplicate address detection", || {
            state = outside.ip(&format!("-6 address show to {address} dev {DOWNLINK}"));
            state.contains("dadfailed") || !state.contains("tentative")
        });
        state.contains("dadfailed")
    };
    assert!(tried(pod.address), "a pod's address is taken");
    assert!(!tried(FREE), "no pod's address is free");
}

#[test]
fn interfaces_that_listen_to_routers_still_do_when_the_node_forwards() {
    let (outside, mut node) = on_link("on-link");
    let netns = &node.netns;
    for (here, there, number) in [("r1", "mgmt0", 1), ("r2", "silent0", 2)] {
        let macs = [0xfe, 0xa].map(|end| format!("02:00:00:00:{number:02x}:{end:02x}"));
        outside.cable((here, &macs[0]), netns, (there, &macs[1]));
    }
    netns.set_sysctl("ipv6/conf/silent0/accept_ra", "0");
    let cables = [(DOWNLINK, UPLINK), ("r1", "mgmt0")];
    let taps = cables.map(|(here, there)| (Tap::on(outside.path(), here), there));
    let router = Asker {
        address: ROUTER_LOCAL,
        ..router()
    };
    let advertise = || {
        for (tap, _) in &taps {
            tap.send(&router.advertises_itself(1_800));
        }
    };
    let listens = |netns: &Netns| {
        let defaults = netns.ip("-6 route show default");
        taps.iter().all(|(_, interface)| {
            defaults
                .lines()
                .any(|route| route.contains(interface) && route.contains("proto ra"))
        })
    };
    wait("default routes", || {
        advertise();
        listens(netns)
    });
    node.start();
    let netns = &node.netns;
    assert_eq!(netns.sysctl("ipv6/conf/all/forwarding"), "1");
    assert!(listens(netns), "{}", netns.ip("-6 route show default"));
    assert_eq!(netns.sysctl(&format!("ipv6/conf/{UPLINK}/accept_ra")), "2");
    assert_eq!(netns.sysctl("ipv6/conf/silent0/accept_ra"), "0");
    netns.ip("-6 route flush default");
    assert!(!listens(netns));
    wait("default routes again", || {
        advertise();
        listens(netns)
    });
}

#[test]
fn a_pods_new_place_is_known_at_once() {
    let switch = switch::Switch::plain();
    let outside = switch.router();
    let (mut first, mut second) = (switch.node(0xa), switch.node(0xb));
    let (first_mac, second_mac) = (switch::mac_text(0xa), switch::mac_text(0xb));
    let address = FREE;
    first.start();
    let pod = first.add_at("a", Some(address));
    assert_eq!(dial(&outside, &pod.netns, address).unwrap(), ROUTER);
    assert_eq!(outside.neighbor(address), Some(first_mac));

    let tap = Tap::on(outside.path(), DOWNLINK);
    first.kill();
    first.netns.ip(&format!("link set {UPLINK} down"));
    second.start();
    let pod = second.add_at("a", Some(address));
    wait("the router to note the new node", || {
        outside.neighbor(address).as_ref() == Some(&second_mac)
    });
    second
        .netns
        .ip(&format!("link set {UPLINK} address {NODE_MAC}"));
    wait("the router to note the new card", || {
        outside.neighbor(address).as_deref() == Some(NODE_MAC)
    });
    let since = tap.several(TIMES, ONE_MORE, |frame| {
        assert_ne!(solicited(frame), Some(address), "the router never asked");
        advertisement(frame).filter(|seen| *seen == announcement(address, NODE_MAC))
    });
    assert_eq!(since.len(), TIMES, "{since:?}");

    let is_about_it = |frame: &[u8]| advertisement(frame).filter(|seen| seen.target == address);
    switch.unplug(0xb);
    switch.plug(0xb);
    let again = tap.several(TIMES, ONE_MORE, is_about_it);
    assert_eq!(again.len(), TIMES, "after the carrier came back: {again:?}");
    second.kill();
    second.start();
    tap.until("the pod, after the agent came back", is_about_it);
    assert_eq!(dial(&outside, &pod.netns, address).unwrap(), ROUTER);
}

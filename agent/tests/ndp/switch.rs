//! A switch between a router and nodes: one that floods, or one that snoops and delivers groups to their members only.

use std::cell::Cell;
use std::net::Ipv6Addr;

use dormouse_rig::address::PREFIX;
use dormouse_rig::{Netns, Tap, wait};

use crate::frame::{Answers as _, is_router, solicited, solicited_node};
use crate::node::{Flags, Node, UPLINK};
use crate::{DOWNLINK, FREE, ROUTER, ROUTER_LOCAL, ROUTER_MAC, announcement, host, router};

const BRIDGE: &str = "sw0";

pub(crate) struct Switch(Netns);

pub(crate) fn mac_text(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

impl Switch {
    /// Floods what is for groups.
    pub(crate) fn plain() -> Self {
        Self::with("mcast_snooping 0")
    }

    /// Snoops for members of groups, and queries. It filters from one response time after its first query on: a second
    /// instead of ten.
    fn snooping() -> Self {
        let switch = Self::with("mcast_snooping 1 mcast_query_response_interval 100");
        switch.0.ip(&format!(
            "link set {BRIDGE} type bridge mcast_query_interval 200 mcast_querier 1"
        ));
        switch
    }

    fn with(settings: &str) -> Self {
        let netns = host("switch");
        netns.ip(&format!("link add {BRIDGE} type bridge {settings}"));
        // The querier's source address.
        netns.ip(&format!("address add fe80::5/64 dev {BRIDGE} nodad"));
        netns.ip(&format!("link set {BRIDGE} up"));
        Self(netns)
    }

    fn connect(&self, port: &str, netns: &Netns, interface: (&str, &str)) {
        let own = interface.1.replacen("02:00", "02:05", 1);
        self.0.cable((port, &own), netns, interface);
        self.0.ip(&format!("link set {port} master {BRIDGE}"));
    }

    /// A router that has the whole /64 on its link.
    pub(crate) fn router(&self) -> Netns {
        let netns = host("router");
        self.connect("router", &netns, (DOWNLINK, ROUTER_MAC));
        netns.ip(&format!(
            "address add {ROUTER_LOCAL}/64 dev {DOWNLINK} nodad"
        ));
        netns.ip(&format!("address add {ROUTER}/64 dev {DOWNLINK} nodad"));
        netns
    }

    /// A node, without an agent yet.
    pub(crate) fn node(&self, number: u8) -> Node {
        let netns = host("node");
        self.connect(&port(number), &netns, (UPLINK, &mac_text(number)));
        let address = node_address(number);
        netns.ip(&format!("address add {address}/64 dev {UPLINK} nodad"));
        let flags = Flags {
            profile: "on-link",
            prefix: PREFIX,
            address,
        };
        Node::new(netns, flags)
    }

    pub(crate) fn unplug(&self, number: u8) {
        self.0.ip(&format!("link set {} down", port(number)));
    }

    pub(crate) fn plug(&self, number: u8) {
        self.0.ip(&format!("link set {} up", port(number)));
    }

    /// Whether the switch has a pod's group at a port.
    fn knows(&self, pod: Ipv6Addr, port: &str) -> bool {
        let group = solicited_node(pod).to_string();
        let known = self.0.run("bridge", "mdb show");
        known
            .lines()
            .any(|line| line.contains(&group) && line.contains(port))
    }
}

fn node_address(number: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(ROUTER.to_bits() & !0xff | u128::from(number))
}

fn at_node(node: &Node) -> (&Netns, &str) {
    (&node.netns, UPLINK)
}

fn port(number: u8) -> String {
    format!("port{number}")
}

/// Whether solicitations for an address arrive at a tap. All ports receive routers' messages: a frame sent before has arrived
/// when a router's message has, or never will.
fn arrives(outside: &Tap, (netns, interface): (&Netns, &str), target: Ipv6Addr) -> bool {
    let at = Tap::on(netns.path(), interface);
    outside.send(&router().asks(target));
    outside.send(&router().advertises_itself(0));
    let seen = Cell::new(false);
    at.until("a router", |frame| {
        seen.set(seen.get() || solicited(frame) == Some(target));
        is_router(frame).then_some(())
    });
    seen.get()
}

#[test]
fn a_switch_that_snoops_delivers_solicitations() {
    let switch = Switch::snooping();
    let outside = switch.router();
    let mut node = switch.node(0xa);
    let stranger = host("stranger");
    switch.connect("stranger", &stranger, ("s0", &mac_text(0x77)));
    let tap = Tap::on(outside.path(), DOWNLINK);
    node.start();
    let pod = node.add("a");
    wait("the switch to have the pod's group", || {
        switch.knows(pod.address, &port(0xa))
    });
    wait("the switch to deliver to no others", || {
        !arrives(&tap, (&stranger, "s0"), pod.address)
    });
    assert!(!arrives(&tap, at_node(&node), FREE), "no pod, no group");
    assert!(arrives(&tap, at_node(&node), pod.address));
    assert_eq!(node.groups(), [pod.address]);

    // Pods live without the agent, and are found without it.
    node.kill();
    let tap = Tap::on(outside.path(), DOWNLINK);
    assert!(arrives(&tap, at_node(&node), pod.address));
    let answer = tap.answer();
    let expected = announcement(pod.address, &mac_text(0xa));
    assert_eq!(
        (answer.target, answer.target_mac),
        (expected.target, expected.target_mac)
    );

    node.start();
    let other = node.add("b");
    node.del("a");
    wait("the node to leave one group and join the other", || {
        node.groups() == [other.address]
    });
}

#[test]
fn groups_of_pods_that_went_unseen_are_left_and_lost_ones_joined_again() {
    let switch = Switch::plain();
    let mut node = switch.node(0xa);
    node.start();
    let (a, b) = (node.add("a"), node.add("b"));
    let both = [a.address, b.address];
    wait("both groups", || node.groups() == both);
    let uplink = &node.netns;
    uplink.ip(&format!("link set {UPLINK} down"));
    assert!(node.groups().is_empty(), "the kernel forgets");
    uplink.ip(&format!("link set {UPLINK} up"));
    wait("both groups again", || node.groups() == both);
    uplink.ip(&format!(
        "address add {}/64 dev {UPLINK} nodad",
        node_address(0xa)
    ));
    node.kill();
    let foreign = "2001:db8:ffff::1";
    for address in [FREE.to_string().as_str(), foreign] {
        node.netns
            .ip(&format!("-6 neighbour add proxy {address} dev {UPLINK}"));
    }
    node.start();
    let kept = [both[0], both[1], foreign.parse().unwrap()];
    wait("only the living's and others' groups", || {
        node.groups() == kept
    });
}

//! Each kind of network, played by a router in a namespace.

use std::net::Ipv6Addr;
use std::time::Duration;

use dormouse_rig::address::PREFIX;
use dormouse_rig::frame::mac;
use dormouse_rig::{Netns, Tap, dial, wait};

use crate::frame::{Asker, advertisement, ends, solicited, unreachable};
use crate::node::{Flags, Node, UPLINK};
use crate::{
    DOWNLINK, NODE, NODE_MAC, ROUTER, ROUTER_LOCAL, ROUTER_MAC, assert_silent, cabled, on_link,
};

/// What Linux answers where a route refuses (RFC 4443, 3.1).
const NO_ROUTE: u8 = 0;

/// A router with a static route for a prefix, which solicits for nothing.
fn delivers(outside: &Netns, prefix: &str) {
    outside.ip(&format!("address add {ROUTER}/128 dev {DOWNLINK} nodad"));
    outside.ip(&format!(
        "neighbour replace fe80::a lladdr {NODE_MAC} dev {DOWNLINK} nud permanent"
    ));
    outside.ip(&format!("route add {prefix} via fe80::a dev {DOWNLINK}"));
}

/// A node that knows its router from its configuration.
fn node(netns: Netns, profile: &'static str, prefix: &'static str, address: Ipv6Addr) -> Node {
    netns.ip(&format!("address add {address}/128 dev {UPLINK} nodad"));
    let flags = Flags {
        profile,
        prefix,
        address,
    };
    Node::new(netns, flags)
}

#[test]
fn an_on_link_64_needs_nothing_but_answers() {
    let (outside, mut node) = on_link("on-link");
    node.start();
    let pod = node.add("a");
    assert_eq!(dial(&outside, &pod.netns, pod.address).unwrap(), ROUTER);
    assert_eq!(dial(&pod.netns, &outside, ROUTER).unwrap(), pod.address);
}

#[test]
fn a_routed_prefix_is_delivered_without_neighbour_discovery() {
    let (outside, netns) = cabled();
    delivers(&outside, PREFIX);
    outside.ip(&format!("route add {NODE}/128 via fe80::a dev {DOWNLINK}"));
    let mut node = node(netns, "routed", PREFIX, NODE);
    node.netns.ip(&format!(
        "route add default via {ROUTER_LOCAL} dev {UPLINK}"
    ));
    // What a profile before has left.
    node.netns.ip(&format!(
        "-6 neighbour add proxy 2001:db8:d0:0:0:1:1:0 dev {UPLINK}"
    ));
    let tap = Tap::on(outside.path(), DOWNLINK);
    node.start();
    let pod = node.add("a");
    assert_eq!(dial(&outside, &pod.netns, pod.address).unwrap(), ROUTER);
    assert_eq!(dial(&pod.netns, &outside, ROUTER).unwrap(), pod.address);
    wait("the node to be in no group", || node.groups().is_empty());
    let said = tap.watch(Duration::from_millis(1_200), |frame| {
        advertisement(frame).filter(|seen| seen.target == pod.address)
    });
    assert!(said.is_empty(), "{said:?}");
    assert_silent(&tap, pod.address, NODE);
}

#[test]
fn aws_delivers_a_delegated_80_and_takes_frames_of_the_primary_card_only() {
    let delegated = "2001:db8:d0:0:7::/80";
    let (outside, netns) = cabled();
    delivers(&outside, delegated);
    outside.ip(&format!("route add {NODE}/128 via fe80::a dev {DOWNLINK}"));
    let filter = format!(
        "table netdev fabric {{ chain in {{ type filter hook ingress device {DOWNLINK} priority 0;
            ether saddr != {NODE_MAC} counter drop
            ip6 saddr != {{ {NODE}, {delegated}, fe80::/10, :: }} counter drop
          }}
        }}"
    );
    outside.run("nft", &filter);
    let mut node = node(netns, "aws", delegated, NODE);
    node.netns.ip(&format!(
        "route add default via {ROUTER_LOCAL} dev {UPLINK}"
    ));
    let tap = Tap::on(outside.path(), DOWNLINK);
    node.start();
    let pod = node.add("a");
    let own = "2001:db8:d0:0:7::".parse::<Ipv6Addr>().unwrap();
    assert_eq!(
        pod.address.to_bits() >> 32,
        own.to_bits() >> 32,
        "the first /96"
    );
    assert_eq!(dial(&outside, &pod.netns, pod.address).unwrap(), ROUTER);
    assert_eq!(dial(&pod.netns, &outside, ROUTER).unwrap(), pod.address);
    let dropped = outside.run("nft", "list ruleset");
    assert_eq!(dropped.matches("packets 0 bytes 0").count(), 2, "{dropped}");
    let asked = tap.watch(Duration::from_millis(100), |frame| {
        solicited(frame).filter(|target| *target == pod.address)
    });
    assert!(asked.is_empty(), "the fabric asks for no pod");
}

#[test]
fn what_no_pod_has_of_all_that_is_delivered_ends_at_the_node() {
    for (profile, delivered, free) in [
        ("aws", "2001:db8:d0:0:7::/80", "2001:db8:d0:0:7:1:0:99"),
        ("routed", "2001:db8:d1::/64", "2001:db8:d1:0:1::99"),
    ] {
        let (outside, netns) = cabled();
        delivers(&outside, delivered);
        outside.ip(&format!("route add {NODE}/128 via fe80::a dev {DOWNLINK}"));
        let mut node = node(netns, profile, delivered, NODE);
        node.netns.ip(&format!(
            "route add default via {ROUTER_LOCAL} dev {UPLINK}"
        ));
        node.start();
        let pod = node.add("a");
        assert_eq!(dial(&outside, &pod.netns, pod.address).unwrap(), ROUTER);
        let free: Ipv6Addr = free.parse().unwrap();
        let tap = Tap::on(outside.path(), DOWNLINK);
        dial(&outside, &node.netns, free).unwrap_err();
        let answer = tap.until("an answer", |frame| {
            let returned = ends(frame) == Some((mac(NODE_MAC), free));
            let code = unreachable(frame).map(Ok);
            if returned {
                Some(Err("returned"))
            } else {
                code
            }
        });
        assert_eq!(answer, Ok(NO_ROUTE), "{delivered}");
        node.kill();
        let said = node.uninstall();
        assert!(
            said.contains(&format!("removed route {delivered}")),
            "{said}"
        );
        let routes = node.netns.ip("-6 route show type unreachable");
        assert!(routes.is_empty(), "{routes}");
    }
}

#[test]
fn pods_of_another_plugin_keep_their_link_while_they_have_addresses_of_the_delivered_prefix() {
    let delivered = "2001:db8:d1::/80";
    let other_pod = "2001:db8:d1::2";
    let (outside, netns) = cabled();
    delivers(&outside, delivered);
    let mut node = node(netns, "routed", delivered, NODE);
    node.netns.ip(&format!(
        "route add default via {ROUTER_LOCAL} dev {UPLINK}"
    ));
    node.start();
    let refused = node
        .netns
        .ip(&format!("-6 route show type unreachable {delivered}"));
    assert!(refused.contains(delivered), "{refused}");
    // The plugin creates its bridge with the first pod: after the agent's start.
    node.netns.ip("link add cni0 type ifb");
    node.netns.ip("link set cni0 up");
    node.netns
        .ip("address add 2001:db8:d1::1/80 dev cni0 nodad");
    let route = node.netns.ip(&format!("-6 route get {other_pod}"));
    assert!(route.contains("dev cni0"), "{route}");
}

#[test]
fn gcp_delivers_the_machines_own_96_by_packets_of_1460_bytes() {
    let (outside, netns) = cabled();
    for (netns, interface) in [(&outside, DOWNLINK), (&netns, UPLINK)] {
        netns.ip(&format!("link set {interface} mtu 1460"));
    }
    delivers(&outside, PREFIX);
    let own = "2001:db8:d0:0:0:1::".parse().unwrap();
    let mut node = node(netns, "gcp", PREFIX, own);
    let metadata = Asker {
        mac: mac(ROUTER_MAC),
        address: ROUTER_LOCAL,
    };
    let tap = Tap::on(outside.path(), DOWNLINK);
    wait("the default route", || {
        tap.send(&metadata.advertises_itself(1_800));
        let routes = node.netns.ip("-6 route show default");
        routes.contains("proto ra")
    });
    node.start();
    let pod = node.add("a");
    assert!(pod.netns.ip("link show eth0").contains(" mtu 1460 "));
    assert_eq!(dial(&outside, &pod.netns, pod.address).unwrap(), ROUTER);
    assert_eq!(dial(&pod.netns, &outside, ROUTER).unwrap(), pod.address);
}

//! Pods with an IPv4 address beside their IPv6 one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use dormouse_rig::{Netns, dial};

use crate::node::Node;
use crate::plugin::{Attach as _, Call, address_of};
use crate::{PORT, VALID};

const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// A host behind the router.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// A node with `--prefix4`, whose network a router on the uplink routes to it.
pub(crate) fn dual() -> Node {
    let mut node = Node::start();
    let (inner, outer) = (node.netns(), node.outside());
    inner.ip(&format!("addr add {NODE}/24 dev up0"));
    outer.ip(&format!("addr add {ROUTER}/24 dev up0"));
    outer.ip(&format!("addr add {FAR}/32 dev lo"));
    inner.ip(&format!("route add default via {ROUTER}"));
    outer.ip(&format!("route add 192.0.2.0/24 via {NODE}"));
    node.restart_with(Some("192.0.2.0/24".parse().unwrap()));
    node
}

pub(crate) fn address4_of(result: &Value) -> Ipv4Addr {
    let text = result["ips"][1]["address"].as_str().unwrap();
    text.strip_suffix("/32").unwrap().parse().unwrap()
}

fn ask(address: &str) -> Value {
    json!({"runtimeConfig": {"ips": [address]}})
}

/// What the node has of IPv4 addresses of pods.
fn traces(netns: &Netns) -> BTreeSet<String> {
    let ip = |arguments: &[&str]| {
        let output = netns.inside(|| Command::new("ip").args(arguments).output());
        String::from_utf8(output.stdout).unwrap()
    };
    let all = ip(&["-4", "route"]) + &ip(&["-4", "neigh", "show", "nud", "permanent"]);
    let lines = all.lines().map(|line| line.trim().to_owned());
    lines.filter(|line| line.contains("192.0.2.")).collect()
}

#[test]
fn pods_reach_by_ipv4_each_other_their_node_and_hosts_far_away() {
    let node = dual();
    let before = traces(node.netns());
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    let other = Call::add(&node, "b", &b).ok();
    let (at_a, at_b) = (address4_of(&result), address4_of(&other));
    assert_eq!(at_a, Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(dial(&a, &b, at_b).unwrap(), at_a);
    assert_eq!(dial(&b, &a, at_a).unwrap(), at_b);
    assert_eq!(dial(node.netns(), &a, at_a).unwrap(), NODE);
    assert_eq!(dial(&a, node.netns(), NODE).unwrap(), at_a);
    assert_eq!(dial(node.outside(), &b, at_b).unwrap(), ROUTER);
    assert_eq!(dial(&b, node.outside(), FAR).unwrap(), at_b);
    assert_eq!(
        dial(&a, &b, address_of(&other)).unwrap(),
        address_of(&result)
    );
    Call::check(&node, "a", &a, &result).ok();

    let free = SocketAddr::from(([192, 0, 2, 200], PORT));
    let outside = node.outside();
    let error = outside
        .inside(move || Ok(TcpStream::connect_timeout(&free, Duration::from_secs(5)).unwrap_err()));
    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");

    Call::del(&node, "a").ok();
    Call::gc(&node, &json!({VALID: []})).ok();
    assert_eq!(traces(node.netns()), before);
}

#[test]
fn check_finds_a_removed_address_and_a_missing_way() {
    let node = dual();
    let pod = node.pod("a");
    let result = Call::add(&node, "a", &pod).ok();
    let address = address4_of(&result).to_string();
    let check = || Call::check(&node, "a", &pod, &result);
    pod.ip(&format!("addr del {address}/32 dev eth0"));
    check().fails(101, &format!("lacks the address {address}"));
    pod.ip(&format!("addr add {address}/32 dev eth0"));
    pod.ip("route replace default dev eth0");
    check().ok();
    pod.ip("-4 route flush exact default");
    check().fails(101, "no IPv4 default route");
    let mut forgetful = result.clone();
    forgetful["ips"].as_array_mut().unwrap().pop();
    Call::check(&node, "a", &pod, &forgetful).fails(101, "does not contain");
}

#[test]
fn a_restarted_agent_restores_the_routes_to_both_addresses() {
    let mut node = dual();
    let bare = traces(node.netns());
    let pod = node.pod("a");
    let result = Call::add(&node, "a", &pod).ok();
    let address = address4_of(&result);
    let there = traces(node.netns());
    node.stop();
    let route = format!("{address}/32");
    node.netns().ip(&format!("route del {route}"));
    node.netns()
        .ip(&format!("neigh del {address} dev dormouse0"));
    node.restart();
    assert_eq!(traces(node.netns()), there);
    assert_eq!(dial(node.outside(), &pod, address).unwrap(), ROUTER);
    Call::check(&node, "a", &pod, &result).ok();

    // A lost journal: the link itself has the addresses.
    node.stop();
    std::fs::remove_file(node.state_dir().join("leases")).unwrap();
    node.restart();
    Call::check(&node, "a", &pod, &result).ok();
    let other = node.pod("b");
    Call::add(&node, "b", &other)
        .conf(&ask(&address.to_string()))
        .fails(7, "is held by pods/a/eth0");

    // An agent without `--prefix4` keeps pods' IPv4 addresses and assigns no new ones.
    node.restart_with(None);
    Call::check(&node, "a", &pod, &result).ok();
    let single = Call::add(&node, "b", &other).ok();
    assert_eq!(single["ips"].as_array().unwrap().len(), 1);
    Call::del(&node, "a").ok();
    assert_eq!(bare.len(), 1, "what no pod has was refused: {bare:?}");
    assert!(traces(node.netns()).is_empty(), "and is no more");
}

#[test]
fn a_requested_ipv4_address_is_given_or_refused_with_the_reason() {
    let mut node = dual();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let given = Call::add(&node, "a", &a).conf(&ask("192.0.2.77")).ok();
    assert_eq!(address4_of(&given), Ipv4Addr::new(192, 0, 2, 77));
    let refused = |node: &Node, address: &str, part: &str| {
        Call::add(node, "b", &b).conf(&ask(address)).fails(7, part);
    };
    refused(&node, "192.0.2.77", "is held by pods/a/eth0");
    refused(&node, "192.0.2.1", "or is its gateway");
    refused(&node, "198.51.100.9", "is not one of 192.0.2.0/24");
    node.restart_with(None);
    refused(&node, "192.0.2.78", "the node has no IPv4 range");
    assert_eq!(node.links().len(), 1);
}

#[test]
fn a_used_up_range_is_told_and_leaves_nothing() {
    let mut node = dual();
    node.restart_with(Some("192.0.2.0/30".parse().unwrap()));
    let (a, b) = (node.pod("a"), node.pod("b"));
    Call::status(&node).ok();
    Call::add(&node, "a", &a).ok();
    let before = traces(node.netns());
    let full = "no IPv4 address left in 192.0.2.0/30";
    Call::add(&node, "b", &b).fails(11, full);
    Call::status(&node).fails(50, full);
    assert_eq!(traces(node.netns()), before);
    assert_eq!(node.table().len(), 1);
    node.restart_with(Some("192.0.2.0/24".parse().unwrap()));
    Call::add(&node, "b", &b).ok();
}

#[test]
fn a_range_serves_more_pods_than_it_has_addresses_within_an_hour() {
    // 192.0.2.1 is the gateway.
    const POOL: usize = 253;
    let mut node = dual();
    let pod = node.pod("a");
    let mut given = Vec::new();
    for number in 0..POOL + 7 {
        if number == 200 {
            node.restart();
        }
        let container = format!("c{number}");
        let result = Call::add(&node, &container, &pod).ok();
        given.push(address4_of(&result));
        Call::del(&node, &container).ok();
    }
    let (first, again) = given.split_at(POOL);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), POOL);
    assert_eq!(again, &first[..7], "those that were released first");
}

#[test]
fn another_plugins_pod_gets_both_addresses() {
    let node = dual();
    let pod = node.pod("a");
    let kept = Call::add(&node, "a", &pod).delegated().ok();
    assert_eq!(
        kept["ips"],
        json!([
            {"address": "2001:db8:d0::1:1:0/96", "gateway": "2001:db8:d0::1:0:1"},
            {"address": "192.0.2.2/24", "gateway": "192.0.2.1"},
        ])
    );
    assert_eq!(
        kept["routes"][1],
        json!({"dst": "0.0.0.0/0", "gw": "192.0.2.1"})
    );
}

#[test]
fn without_an_agent_a_pod_gets_both_addresses_too() {
    let mut node = dual();
    let pod = node.pod("a");
    node.stop();
    let result = Call::add(&node, "a", &pod).offline().ok();
    assert_eq!(
        dial(&pod, node.outside(), FAR).unwrap(),
        address4_of(&result)
    );
    node.restart();
    Call::check(&node, "a", &pod, &result).ok();
}

#[test]
fn a_range_that_is_the_uplinks_own_network_cuts_nobody_off() {
    let mut node = dual();
    let refused = traces(node.netns());
    assert_eq!(refused.len(), 1, "{refused:?}");
    node.restart_with(Some("198.51.100.0/24".parse().unwrap()));
    node.netns().ip(&format!("route get {ROUTER}"));
    let left = traces(node.netns());
    assert!(left.is_empty(), "the range before: {left:?}");
}

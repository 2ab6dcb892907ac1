//! The Node object: the node waits for what it says, takes prefix and addresses of it, and lifts condition and taint when it is ready.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dormouse_agent_datapath::Pinned;
use dormouse_rig::address::NODE;
use dormouse_rig::plugin::address_of;
use dormouse_rig::{Agent, Call, Node, UPLINK, ip, on_node, wait};
use serde_json::{Value, json};

use crate::rights;
use crate::server::{NODES, Server};
use crate::{get, programmed, put, start_command, vip, wait_for, wait_for_log, with_server};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const TAINT: &str = "dormouse.dev/agent-not-ready";

fn networks(node: &Node) -> PathBuf {
    node.dir().join("net.d")
}

/// The copy of what the Node object said.
fn copy(node: &Node) -> PathBuf {
    node.home().state_dir().join("node.json")
}

/// Starts an agent that finds prefix and addresses in its Node object.
pub(crate) fn start(node: &Node, server: &Server, profile: &str, more: &[&str]) -> Agent {
    let command = node
        .home()
        .command(&["run", "--runtime", "none", "--uplink", UPLINK]);
    let networks = networks(node);
    let flags = [
        "--network-profile",
        profile,
        "--cni-conf-dir",
        networks.to_str().unwrap(),
    ];
    let flags = [&flags[..], more].concat();
    start_command(node, command, &server.url(), &flags)
}

/// A Node object with these ranges and addresses, as kubelet registers it.
pub(crate) fn object(node: &Node, cidrs: &[&str], addresses: &[&str]) -> Value {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    let taints = json!([
        {"key": "other", "value": "v", "effect": "NoSchedule"},
        {"key": TAINT, "effect": "NoSchedule"},
        {"key": TAINT, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    ]);
    let mut spec = json!({"taints": taints});
    if let Some(first) = cidrs.first() {
        spec["podCIDR"] = json!(first);
        spec["podCIDRs"] = json!(cidrs);
    }
    let conditions = json!([
        {"type": "NetworkUnavailable", "status": "True", "reason": "CalicoIsDown"},
        {"type": "Ready", "status": "True"},
    ]);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name()},
        "spec": spec,
        "status": {"addresses": addresses, "conditions": conditions},
    })
}

pub(crate) fn call(node: &Node, command: &str) -> Call {
    let home = node.home();
    Call::new(command, Call::network(&home.socket(), &home.state_dir()))
}

/// The error with which the agent refuses a request.
fn refused(call: &Call) -> Value {
    let output = call.run();
    assert!(!output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn taints(server: &Server, node: &Node) -> Vec<String> {
    let object = server.object(NODES, node.name());
    let taints = object["spec"]["taints"].as_array().unwrap().iter();
    taints
        .map(|taint| taint["key"].as_str().unwrap().to_owned())
        .collect()
}

fn condition(server: &Server, node: &Node) -> Value {
    let object = server.object(NODES, node.name());
    let mut conditions = object["status"]["conditions"].as_array().unwrap().iter();
    let found = conditions.find(|condition| condition["type"] == "NetworkUnavailable");
    found.unwrap()["status"].clone()
}

/// Waits for an Event about the node; returns its text.
fn wait_for_event(server: &Server, node: &Node, reason: &str) -> String {
    let find = || {
        let mut events = server.created(EVENTS).into_iter();
        events.find(|event| event["reason"] == reason)
    };
    wait(reason, || find().is_some());
    let event = find().unwrap();
    assert_eq!(event["involvedObject"]["name"], node.name());
    event["message"].as_str().unwrap().to_owned()
}

pub(crate) fn is_ready() -> bool {
    get("/readyz").starts_with("HTTP/1.1 200 ")
}

/// Checks that all who ask get the reason for which the node waits.
pub(crate) fn assert_waits(node: &Node, reason: &str) {
    wait_for_log(node, reason);
    wait("the reason", || get("/readyz").contains(reason));
    let status = refused(&call(node, "STATUS"));
    assert_eq!(status["code"], 50, "{status}");
    assert!(status["msg"].as_str().unwrap().contains(reason), "{status}");
    let pod = node.pod("early");
    let add = call(node, "ADD").attachment("early", pod.path());
    assert_eq!(refused(&add)["code"], 11);
    let metrics = ["get", "services", "-A"];
    let output = node.home().command(&metrics).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(reason), "{text}");
    assert!(!node.bpffs().exists() && !networks(node).exists());
}

/// The Node is created again with other ranges while pod p1 lives, and has it no more. Returns the agent that is left.
fn ranges_change(node: &Node, server: &Server, agent: Agent, pod: &Path) -> Agent {
    let own = NODE.to_string();
    let own = own.as_str();
    // A Node that was created again has other ranges: the pods stay, and the operator learns it.
    server.put(NODES, object(node, &["2001:db8:8::/64"], &[own]));
    let text = wait_for_event(server, node, "PodCIDRChanged");
    assert!(
        text.contains("2001:db8:8::/64") && text.contains("2001:db8:7::/64"),
        "{text}"
    );
    assert_eq!(taints(server, node), ["other", TAINT, TAINT]);
    assert_eq!(condition(server, node), "True");
    assert!(
        copy(node).exists(),
        "another agent needs the ranges of the pods"
    );
    agent.kill();
    let agent = start(node, server, "routed", &[]);
    wait("the next agent to be ready", is_ready);
    call(node, "STATUS").succeeds();

    // Without pods, another agent uses the new ranges. The node looks when its object changes.
    call(node, "DEL").attachment("p1", pod).succeeds();
    server.put(NODES, object(node, &["2001:db8:8::/64"], &[own]));
    wait("the copy to be removed", || !copy(node).exists());
    agent.kill();
    let agent = start(node, server, "routed", &[]);
    wait("the new taint to be removed", || {
        taints(server, node) == ["other"]
    });
    let pod = node.pod("p2");
    let added = call(node, "ADD").attachment("p2", pod.path()).succeeds();
    let address = address_of(&added).to_string();
    assert!(address.starts_with("2001:db8:8::"), "{address}");
    agent
}

#[test]
fn a_node_waits_for_its_object_and_is_lifted_when_it_is_ready() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        let agent = start(node, server, "routed", &[]);
        assert_waits(node, "there is no Node");
        server.put(NODES, object(node, &[], &[]));
        assert_waits(node, "has no spec.podCIDRs yet");
        server.put(NODES, object(node, &["2001:db8:7::/64"], &[]));
        assert_waits(node, "address of type InternalIP yet");

        // Writes that are refused are tried again: a race of taints, and a server without capacity.
        server.refuse_writes(&[429, 422]);
        let own = NODE.to_string();
        server.put(
            NODES,
            object(node, &["10.244.7.0/24", "2001:db8:7::/64"], &[&own]),
        );
        wait_for(node, 1, &[1]);
        wait("the taint to be removed", || {
            taints(server, node) == ["other"]
        });
        assert_eq!(condition(server, node), "False");
        assert!(networks(node).join("10-dormouse.conflist").exists() && is_ready());
        call(node, "STATUS").succeeds();
        let pod = node.pod("p1");
        let added = call(node, "ADD").attachment("p1", pod.path()).succeeds();
        let address = address_of(&added).to_string();
        assert!(address.starts_with("2001:db8:7::"), "{address}");
        assert_eq!(
            added["ips"][1]["address"]
                .as_str()
                .unwrap()
                .split('.')
                .next(),
            Some("10")
        );

        // Another agent of the node needs no server.
        agent.kill();
        server.go_away();
        let agent = start(node, server, "routed", &[]);
        wait_for_log(node, "cannot be followed");
        assert!(is_ready());
        call(node, "STATUS").succeeds();
        server.come_back();

        let agent = ranges_change(node, server, agent, pod.path());
        // A list of each kind is asked for after an interruption.
        server.go_away();
        server.come_back();
        wait("all rights to be used", || {
            rights::used(server) == rights::granted()
        });
        drop(agent);
    });
}

#[test]
fn neither_condition_nor_taint_is_lifted_before_services_are_in_force() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        server.put(
            NODES,
            object(node, &["2001:db8:d0:0:0:1::/96"], &[&NODE.to_string()]),
        );
        // The network configuration cannot be written: no runtime finds the plugin.
        fs::write(networks(node), "").unwrap();
        let _agent = start(node, server, "routed", &[]);
        wait_for(node, 1, &[1]);
        wait_for_log(node, "is not installed");
        let note = wait_for_event(server, node, "PodCIDROverlap");
        assert!(note.contains("2001:db8:d0::/64"), "{note}");
        assert_eq!(taints(server, node), ["other", TAINT, TAINT]);
        assert_eq!(condition(server, node), "True");
        fs::remove_file(networks(node)).unwrap();
        wait("the taint to be removed", || {
            taints(server, node) == ["other"]
        });
        assert_eq!(condition(server, node), "False");
    });
}

#[test]
fn without_ipv6_ranges_services_are_served_beside_another_plugin() {
    on_node(|node| {
        ip(&format!("address add 192.0.2.1/24 dev {UPLINK}"));
        let server = Server::streaming();
        put(&server, 1, &[1]);
        server.put(NODES, object(node, &["10.244.7.0/24"], &["192.0.2.1"]));
        let _agent = start(node, &server, "routed", &[]);
        wait_for(node, 1, &[1]);
        wait("the taint to be removed", || {
            taints(&server, node) == ["other"]
        });
        assert_eq!(condition(&server, node), "True", "it is the other plugin's");
        assert!(is_ready());
        let reason = "no IPv6 range in spec.podCIDRs (10.244.7.0/24)";
        let status = refused(&call(node, "STATUS"));
        assert_eq!(status["code"], 50);
        assert!(status["msg"].as_str().unwrap().contains(reason), "{status}");
        let pod = node.pod("p1");
        let add = call(node, "ADD").attachment("p1", pod.path());
        assert!(refused(&add)["msg"].as_str().unwrap().contains(reason));
        call(node, "DEL").attachment("p1", pod.path()).succeeds();
        let note = wait_for_event(&server, node, "PodCIDRUnusable");
        assert!(note.contains(reason), "{note}");
        assert!(!ip("link").contains("dormouse0") && !networks(node).exists());
        // Another agent reads the object again.
        assert!(!copy(node).exists());
        let both = ["10.244.7.0/24", "2001:db8:7::/64"];
        server.put(NODES, object(node, &both, &["192.0.2.1"]));
        let note = wait_for_event(&server, node, "PodCIDRChanged");
        assert!(note.contains(both[1]), "{note}");
    });
}

#[test]
fn addresses_are_followed_while_the_agent_runs_and_flags_count_first() {
    on_node(|node| {
        node.take_address();
        for address in ["192.0.2.1/24", "192.0.2.2/24"] {
            ip(&format!("address add {address} dev {UPLINK}"));
        }
        let server = Server::streaming();
        put(&server, 1, &[1]);
        let own = NODE.to_string();
        let cidrs = ["2001:db8:7::/64"];
        server.put(NODES, object(node, &cidrs, &[&own, "192.0.2.1"]));
        let _agent = start(node, &server, "routed", &["--address", &own]);
        wait_for(node, 1, &[1]);
        let address4 = |wanted: &str| {
            let wanted: IpAddr = wanted.parse().unwrap();
            let pinned = Pinned::open(node.bpffs()).unwrap();
            IpAddr::from(pinned.facts().node_address4).to_canonical() == wanted
        };
        wait("the first address", || address4("192.0.2.1"));
        server.put(NODES, object(node, &cidrs, &["2001:db8::9", "192.0.2.2"]));
        wait("the second address", || address4("192.0.2.2"));
        let pinned = Pinned::open(node.bpffs()).unwrap();
        assert_eq!(pinned.facts().node_address, NODE.octets());
        assert!(
            programmed(node)
                .keys()
                .any(|(address, ..)| *address == vip(1))
        );
        // An address that the machine does not have is waited for.
        server.put(NODES, object(node, &cidrs, &["192.0.2.3"]));
        ip(&format!("address add 192.0.2.3/24 dev {UPLINK}"));
        wait("the third address", || address4("192.0.2.3"));
    });
}

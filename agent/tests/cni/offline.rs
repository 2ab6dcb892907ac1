//! Pods while no agent runs, where the configuration allows it.

use std::net::Ipv6Addr;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use dormouse_rig::{dial, wait};

use crate::node::Node;
use crate::plugin::{Attach as _, Call, address_of};

#[test]
fn a_pod_is_wired_without_an_agent_and_the_next_one_finds_it() {
    let mut node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let at_a = address_of(&Call::add(&node, "a", &a).ok());
    node.stop();
    Call::status(&node).offline().ok();
    let result = Call::add(&node, "b", &b).offline().ok();
    let at_b = address_of(&result);
    assert_eq!(dial(&b, &a, at_a).unwrap(), at_b);
    Call::check(&node, "b", &b, &result).offline().ok();
    Call::add(&node, "b", &b)
        .offline()
        .fails(100, "already holds");
    Call::add(&node, "c", &b)
        .offline()
        .fails(100, "exists already");
    Call::add(&node, "k", &b).delegated().offline().ok();
    assert_eq!(node.links().len(), 2);
    node.restart();
    assert_eq!(node.table(), [at_a, at_b]);
    Call::check(&node, "b", &b, &result).ok();
    assert_eq!(dial(node.netns(), &b, at_b).unwrap(), Node::address());
    node.stop();
    Call::del(&node, "b").offline().ok();
    Call::add(&node, "b", &b).offline().ok();
    Call::del(&node, "a").offline().ok();
    node.restart();
    assert_eq!(node.table().len(), 1);
}

#[test]
fn a_node_that_never_had_an_agent_asks_to_try_again() {
    let mut node = Node::start();
    let pod = node.pod("a");
    node.stop();
    std::fs::remove_file(node.state_dir().join("network.json")).unwrap();
    Call::add(&node, "a", &pod)
        .offline()
        .fails(11, "run dormouse-agent once");
    Call::status(&node)
        .offline()
        .fails(50, "run dormouse-agent once");
    let nowhere = json!({"fallback": "offline", "agent": "/nowhere/dormouse-agent"});
    Call::add(&node, "a", &pod)
        .conf(&nowhere)
        .fails(11, "`dormouse-agent offline` failed");
    assert!(node.links().is_empty());
}

#[test]
fn pods_that_come_at_once_without_an_agent_and_a_bridge_all_get_their_own_address() {
    let mut node = Node::start();
    node.stop();
    node.netns().ip("link del dormouse0");
    let pods: Vec<_> = (0..6).map(|i| node.pod(&format!("o{i}"))).collect();
    let mut addresses: Vec<Ipv6Addr> = std::thread::scope(|scope| {
        let add = |(i, pod)| {
            let (node, id) = (&node, format!("o{i}"));
            scope.spawn(move || address_of(&Call::add(node, &id, pod).offline().ok()))
        };
        let calls: Vec<_> = pods.iter().enumerate().map(add).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    addresses.sort();
    node.restart();
    assert_eq!(node.table(), addresses);
    addresses.dedup();
    assert_eq!(addresses.len(), 6);
}

#[test]
fn a_plugin_that_is_killed_without_an_agent_leaves_nothing() {
    let mut node = Node::start();
    node.stop();
    for i in 0..20_u64 {
        let (id, pod) = (format!("c{i}"), node.pod("k"));
        let mut child = Call::add(&node, &id, &pod).offline().open();
        drop(child.stdin.take());
        std::thread::sleep(Duration::from_micros(1_500 * i));
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        child.wait().unwrap();
    }
    // A process that rolls back a killed ADD holds the journal's lock meanwhile.
    node.restart();
    wait("nothing is left of 20 killed plugins", || {
        Call::gc(&node, &json!({crate::VALID: null})).ok();
        node.table().is_empty() && node.links().is_empty()
    });
}

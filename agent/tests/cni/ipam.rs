//! The plugin as the keeper of addresses for another plugin's pods: by itself, and below the reference `bridge`.

use serde_json::{Value, json};

use dormouse_rig::{dial, wait};

use crate::VALID;
use crate::node::Node;
use crate::plugin::{Attach as _, Call, address_of};

#[test]
fn a_kept_address_is_told_without_interfaces_and_outlives_the_agent() {
    let mut node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let kept = Call::add(&node, "a", &a).delegated().ok();
    assert_eq!(
        kept,
        json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "2001:db8:d0::1:1:0/96", "gateway": "2001:db8:d0::1:0:1"}],
            "routes": [{"dst": "::/0", "gw": "2001:db8:d0::1:0:1"}],
        })
    );
    Call::add(&node, "a", &a)
        .delegated()
        .fails(100, "already holds");
    node.restart();
    assert!(node.table().is_empty() && node.links().is_empty());
    Call::gc(&node, &json!({VALID: null})).ok();
    let check = |pod, result: &Value| Call::check(&node, "a", pod, result).delegated();
    let previous = json!({"prevResult": kept});
    check(&a, &kept).conf(&previous).ok();
    check(&b, &kept)
        .conf(&previous)
        .fails(101, "namespace is a different");
    Call::del(&node, "a").delegated().ok();
    Call::del(&node, "a").delegated().ok();
    check(&a, &kept)
        .conf(&previous)
        .fails(3, "no address lease");
}

#[test]
fn a_kept_address_goes_with_its_pod_or_with_the_list() {
    let node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let wanted = "2001:db8:d0:0:0:1:0:42";
    let ask = json!({"runtimeConfig": {"ips": [wanted]}});
    let taken = |code: u32, part: &str| {
        Call::add(&node, "c", &b).conf(&ask).fails(code, part);
    };
    Call::add(&node, "a", &a).delegated().conf(&ask).ok();
    taken(7, "is held by pods:ipam/a/eth0");
    let gc = |valid: Value| Call::gc(&node, &json!({VALID: valid}));
    // What is wired here and what is kept for others have separate lives.
    gc(json!([])).ok();
    Call::del(&node, "a").ok();
    let collect = |valid: Value| {
        let conf = json!({"cniVersion": "1.1.0", VALID: valid});
        gc(Value::Null).delegated().conf(&conf).ok();
    };
    collect(json!([{"containerID": "a", "ifname": "eth0"}]));
    taken(7, "is held by pods:ipam/a/eth0");
    drop(a);
    wait("the dead pod's address is free", || {
        gc(Value::Null).ok();
        let output = Call::add(&node, "c", &b).conf(&ask).run();
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        error["code"] == 11
    });
    taken(11, "in quarantine for another");
    Call::add(&node, "b", &b).delegated().ok();
    collect(json!([]));
    Call::add(&node, "b", &b).delegated().ok();
}

#[test]
fn without_an_agent_a_kept_address_is_released_later() {
    let mut node = Node::start();
    let pod = node.pod("a");
    Call::add(&node, "a", &pod).delegated().ok();
    node.stop();
    Call::del(&node, "a").delegated().ok();
    Call::add(&node, "b", &pod)
        .delegated()
        .fails(11, "no dormouse-agent answers");
    node.restart();
    Call::add(&node, "a", &pod).delegated().ok();
}

#[test]
fn the_reference_bridge_draws_from_our_addresses() {
    let node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let call = |id: &str, pod| Call::add(&node, id, pod).delegated().by("bridge");
    let result = call("a", &a).ok();
    let (at_a, at_b) = (address_of(&result), address_of(&call("b", &b).ok()));
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
    assert_eq!(dial(&a, &b, at_b).unwrap(), at_a);
    assert_eq!(dial(&a, node.netns(), Node::address()).unwrap(), at_a);
    assert_eq!(dial(node.netns(), &b, at_b).unwrap(), Node::address());
    Call::check(&node, "a", &a, &result)
        .delegated()
        .conf(&json!({"prevResult": result}))
        .by("bridge")
        .ok();
    Call::del(&node, "a")
        .delegated()
        .env("CNI_NETNS", a.path().to_str().unwrap())
        .by("bridge")
        .ok();
    let again = address_of(&call("a", &a).ok());
    assert!(
        again != at_a && again != at_b,
        "a released address is in quarantine"
    );
}

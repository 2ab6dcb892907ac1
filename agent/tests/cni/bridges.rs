//! What becomes of pods when others change bridges and the uplink.

use dormouse_rig::dial;

use crate::dual::{address4_of, dual};
use crate::node::Node;
use crate::plugin::{Attach as _, Call, address_of};

#[test]
fn a_bridge_that_was_down_is_set_up_again_with_the_routes_of_its_pods() {
    let node = dual();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    let at_b = address_of(&Call::add(&node, "b", &b).ok());
    for change in ["link set dormouse0 down", "link set dormouse0 mtu 1000"] {
        node.netns().ip(change);
        Call::status(&node).fails(51, "`dormouse0` is down or has lost its addresses");
        assert!(dial(node.netns(), &b, at_b).is_err());
        node.reconcile();
        Call::status(&node).ok();
        Call::check(&node, "a", &a, &result).ok();
        let node = node.netns();
        assert!(dial(node, &a, address_of(&result)).is_ok(), "{change}");
        assert!(dial(node, &a, address4_of(&result)).is_ok(), "{change}");
        assert!(dial(&a, &b, at_b).is_ok(), "{change}");
    }
}

#[test]
fn an_uplink_that_is_too_narrow_for_ipv6_does_not_take_it_from_pods() {
    let node = Node::start();
    let a = node.pod("a");
    let address = address_of(&Call::add(&node, "a", &a).ok());
    node.netns().ip("link set up0 mtu 1000");
    node.reconcile();
    assert!(node.netns().ip("link show dormouse0").contains("mtu 1280"));
    assert!(a.ip("link show eth0").contains("mtu 1280"));
    assert!(dial(node.netns(), &a, address).is_ok());
}

#[test]
fn pods_of_a_deleted_bridge_are_attached_again_at_the_next_start() {
    let mut node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    let at_b = address_of(&Call::add(&node, "b", &b).ok());
    node.netns().ip("link del dormouse0");
    assert!(dial(&a, &b, at_b).is_err());
    node.restart();
    Call::check(&node, "a", &a, &result).ok();
    assert!(dial(&a, &b, at_b).is_ok());
    assert!(dial(node.netns(), &a, address_of(&result)).is_ok());
}

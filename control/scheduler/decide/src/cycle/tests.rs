//! Attempts: how many nodes are looked at, and what is refused.

use serde_json::json;

use super::*;
use crate::Node;

fn parsed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn without_scores_the_first_feasible_node_is_the_one() {
    let mut snapshot = Snapshot::default();
    for name in ["a", "b", "c"] {
        let status = json!({"allocatable": {"pods": "1"}});
        let node = parsed(json!({"metadata": {"name": name}, "status": status}));
        snapshot.set_node(Node::parse(&node).unwrap());
    }
    snapshot.refresh();
    let pod = Pod::parse(&parsed(
        json!({"metadata": {"name": "p"}, "spec": {"containers": []}}),
    ));
    let profile = json!({"plugins": {"score": {"disabled": [{"name": "*"}]}}});
    let mut scheduler = Scheduler::new(Profile::parse(&profile).unwrap());
    let attempt = scheduler.attempt(&snapshot, pod.as_ref().unwrap());
    assert_eq!((attempt.best(), attempt.window.next), (vec!["a"], 1));
    let attempt = scheduler.attempt(&snapshot, pod.as_ref().unwrap());
    assert_eq!(attempt.best(), ["b"]);
}

#[test]
fn a_pod_that_claims_devices_fails_by_the_name_of_the_plugin() {
    let mut snapshot = Snapshot::default();
    let node = parsed(json!({"metadata": {"name": "a"}}));
    snapshot.set_node(Node::parse(&node).unwrap());
    snapshot.refresh();
    let spec = json!({"containers": [], "resourceClaims": [{"name": "gpu"}]});
    let pod = Pod::parse(&parsed(json!({"metadata": {"name": "p"}, "spec": spec}))).unwrap();
    let attempt = Scheduler::new(Profile::default()).attempt(&snapshot, &pod);
    let error =
        "running PreFilter plugin \"DynamicResources\": spec.resourceClaims is not supported";
    assert_eq!(attempt.outcome, Outcome::Error(error.to_owned()));
}

#[test]
fn the_share_of_nodes_shrinks_with_their_number() {
    let adaptive = |len| feasible_max(0, len);
    assert_eq!(adaptive(99), 99);
    assert_eq!(adaptive(100), 100);
    assert_eq!(adaptive(1_000), 420);
    assert_eq!(adaptive(5_000), 500);
    assert_eq!(adaptive(10_000), 500);
    assert_eq!(adaptive(1_000_000), 50_000);
    assert_eq!(feasible_max(100, 250), 250);
    assert_eq!(feasible_max(1, 250), 100);
}

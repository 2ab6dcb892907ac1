//! Victims: who is spared, whom budgets protect, and who may not preempt.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::{Node, Outcome, Profile, Scheduler};

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, node: &str, priority: i32, cpu: &str) -> Pod {
    let requests = json!({"requests": {"cpu": cpu}});
    let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": node, "priority": priority, "containers": [{"name": "c", "resources": requests}]}});
    Pod::parse(&parsed(pod)).unwrap()
}

fn budget(name: &str, apps: &[&str], allowed: i32) -> PodDisruptionBudget {
    let expression = json!({"key": "app", "operator": "In", "values": apps});
    parsed(json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [expression]}}, "status": {"disruptionsAllowed": allowed,
            "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}}))
}

/// One node with 4 CPUs and these pods of 1 CPU each, by their names and priorities.
fn cluster(pods: &[(&str, i32)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let allocatable = json!({"cpu": "4", "pods": "10"});
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
    snapshot.set_node(Node::parse(&parsed(node)).unwrap());
    for (name, priority) in pods {
        snapshot.set_pod(pod(name, "n", *priority, "1"));
    }
    snapshot
}

fn preempts(snapshot: &mut Snapshot, cpu: &str) -> Preemption {
    snapshot.refresh();
    let attempt = Scheduler::new(Profile::default()).attempt(snapshot, &pod("new", "", 10, cpu));
    assert!(matches!(attempt.outcome, Outcome::Unschedulable(_)));
    attempt.preemption.unwrap()
}

fn victims(preemption: &Preemption) -> Vec<&str> {
    let victims = &preemption.candidates[0].victims;
    victims.iter().map(|key| key.name.as_str()).collect()
}

#[test]
fn the_least_important_pods_go() {
    let mut snapshot = cluster(&[("a", 1), ("b", 3), ("c", 2), ("d", 4)]);
    assert_eq!(victims(&preempts(&mut snapshot, "2")), ["c", "a"]);
}

#[test]
fn a_pod_under_a_budget_is_spared_before_more_important_ones() {
    let mut snapshot = cluster(&[("a", 1), ("b", 2), ("c", 20), ("d", 20)]);
    snapshot.set_budget(&budget("one", &["a"], 0));
    assert_eq!(victims(&preempts(&mut snapshot, "1")), ["b"]);
    let preemption = preempts(&mut snapshot, "2");
    assert_eq!(victims(&preemption), ["b", "a"]);
    assert_eq!(preemption.candidates[0].budget_violations, 1);
}

#[test]
fn a_pod_takes_from_all_its_budgets_and_violates_any() {
    let pods: Vec<_> = ["a", "b"]
        .map(|name| Arc::new(pod(name, "n", 0, "1")))
        .into();
    let mut snapshot = Snapshot::default();
    snapshot.set_budget(&budget("1", &["a"], 0));
    snapshot.set_budget(&budget("2", &["a", "b"], 1));
    let (violating, others) = by_budget(&snapshot.budgets, pods);
    let names = |all: &[Arc<Pod>]| {
        all.iter()
            .map(|pod| pod.key.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&violating), ["a", "b"]);
    assert_eq!(names(&others), [""; 0]);
}

#[test]
fn no_pod_is_evicted_in_vain() {
    let mut snapshot = cluster(&[("a", 1), ("b", 20), ("c", 20), ("d", 20)]);
    let preemption = preempts(&mut snapshot, "2");
    assert!(preemption.candidates.is_empty());
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(preemption.message.as_deref(), Some(message));
}

#[test]
fn lower_nominations_on_the_node_are_cleared() {
    let mut snapshot = cluster(&[]);
    snapshot.set_pod(pod("low", "", 1, "1").nominated("n"));
    snapshot.set_pod(pod("high", "", 11, "1").nominated("n"));
    let new = pod("new", "", 10, "1");
    let cleared = Preemption::cleared_nominations(&snapshot, &new, "n");
    assert_eq!(cleared, [pod("low", "", 1, "1").key().clone()]);
}

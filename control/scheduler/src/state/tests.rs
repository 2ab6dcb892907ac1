//! The state: assumed pods, bindings, preemption, and input that is malformed, late or repeated.

mod announced;
mod bad_input;
mod consult;
mod preemption;
mod sharded;

use k8s_openapi::api::core::v1::Node as ApiNode;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn node_of(name: &str, allocatable: &Value) -> Change {
    let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let node: ApiNode = serde_json::from_value(node).unwrap();
    Change::Node(Key::cluster_scoped(name), Some(Arc::new(node)))
}

fn node(name: &str, pods: u32) -> Change {
    node_of(
        name,
        &json!({"cpu": "4", "memory": "8Gi", "pods": pods.to_string()}),
    )
}

/// A pod with more fields, of which those of `metadata` and `status` are merged.
fn pod_with(name: &str, more: &Value) -> Arc<ApiPod> {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": []}});
    for part in ["metadata", "spec", "status"] {
        for (field, value) in more[part].as_object().into_iter().flatten() {
            pod[part][field] = value.clone();
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn pod(name: &str) -> Arc<ApiPod> {
    pod_with(name, &json!({}))
}

fn on(name: &str, node: &str) -> Arc<ApiPod> {
    pod_with(name, &json!({"spec": {"nodeName": node}}))
}

fn change(pod: &Arc<ApiPod>) -> Change {
    let meta = &pod.metadata;
    let name = meta.name.clone().unwrap();
    Change::Pod(Key::new("default", name), Some(Arc::clone(pod)))
}

fn gone(name: &str) -> Change {
    Change::Pod(Key::new("default", name), None)
}

fn state(changes: &[Change]) -> State {
    let mut state = State::new(vec![Profile::default()], 1);
    for change in changes {
        state.apply(at(0), change);
    }
    state
}

/// What is to be written about the next pod.
fn write(state: &mut State, now: i64) -> Option<Work> {
    match state.step(at(now))? {
        Step::Write(work) => Some(*work),
        Step::Early | Step::Ask(_) => panic!("nothing is to be written"),
    }
}

/// Decides for the next pod: its attempt, and the node or the message.
fn next(state: &mut State, now: i64) -> Option<(Attempt, Result<String, String>)> {
    let work = write(state, now)?;
    let verdict = match work.verdict {
        Verdict::Placed(node) => Ok(node),
        Verdict::Rejected(rejection) => Err(rejection.message),
    };
    Some((work.attempt.unwrap(), verdict))
}

/// Decides for the next pod, which no node can have.
fn reject(state: &mut State, now: i64) -> String {
    let (attempt, verdict) = next(state, now).unwrap();
    state.finish(at(now), attempt, Outcome::Rejected);
    verdict.unwrap_err()
}

/// Decides for the next pod; its node.
fn placed(state: &mut State, now: i64) -> (Attempt, String) {
    let (attempt, verdict) = next(state, now).unwrap();
    (attempt, verdict.unwrap())
}

fn is_idle(state: &mut State, now: i64) -> bool {
    state.step(at(now)).is_none()
}

/// Places a pod directly; an engine decides at once.
fn place(state: &mut State, now: Timestamp, pod: &Arc<ApiPod>) -> Result<String, String> {
    state.place(now, pod).unwrap()
}

#[test]
fn a_pod_that_was_placed_directly_counts_until_it_is_seen_or_expires() {
    let ttl = ASSUMED_TTL.as_secs();
    let mut state = state(&[node("n1", 1)]);
    assert_eq!(place(&mut state, at(0), &pod("a")), Ok("n1".to_owned()));
    assert_eq!(
        place(&mut state, at(5), &pod("a")),
        Ok("n1".to_owned()),
        "a repeated request"
    );
    let refused = place(&mut state, at(ttl - 1), &pod("b")).unwrap_err();
    assert!(
        refused.starts_with("0/1 nodes are available: 1 Too many pods."),
        "{refused}"
    );
    assert_eq!(place(&mut state, at(ttl), &pod("b")), Ok("n1".to_owned()));
    state.apply(at(ttl), &change(&on("b", "n1")));
    assert!(
        place(&mut state, at(ttl * 9), &pod("c")).is_err(),
        "b was seen in the store"
    );
}

#[test]
fn a_pod_that_was_placed_directly_and_created_without_its_node_is_bound_there() {
    let mut state = state(&[node("n1", 1), node("n2", 0)]);
    assert_eq!(place(&mut state, at(0), &pod("a")), Ok("n1".to_owned()));
    state.apply(at(1), &change(&pod("a")));
    let (attempt, node) = placed(&mut state, 2);
    assert_eq!(node, "n1");
    state.finish(at(2), attempt, Outcome::Bound);
    assert!(
        place(&mut state, at(60), &pod("b")).is_err(),
        "a bound pod does not expire"
    );
}

#[test]
fn a_terminated_or_deleted_pod_frees_its_resources() {
    let mut state = state(&[node("n1", 1), change(&on("a", "n1"))]);
    assert!(place(&mut state, at(0), &pod("b")).is_err());
    let ended = pod_with(
        "a",
        &json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}),
    );
    state.apply(at(0), &change(&ended));
    assert!(place(&mut state, at(0), &pod("b")).is_ok());
    state.apply(at(0), &gone("a"));
    assert!(
        place(&mut state, at(0), &pod("c")).is_err(),
        "nothing is freed twice"
    );
}

#[test]
fn an_unschedulable_pod_is_tried_again_when_a_node_may_have_it() {
    let mut state = state(&[change(&pod("a"))]);
    assert_eq!(reject(&mut state, 0), "no nodes available to schedule pods");
    state.apply(at(9), &node("n1", 0));
    assert!(reject(&mut state, 9).contains("Too many pods"));
    state.apply(at(20), &node("n1", 0));
    assert!(is_idle(&mut state, 20), "nothing has changed");
    state.apply(at(30), &node("n1", 1));
    assert_eq!(placed(&mut state, 30).1, "n1");
    assert!(is_idle(&mut state, 40), "its binding is being written");
}

#[test]
fn a_write_of_its_status_does_not_wake_an_unschedulable_pod() {
    let mut state = state(&[change(&pod("a")), node("n1", 0)]);
    reject(&mut state, 0);
    let written = pod_with("a", &json!({"status": {"phase": "Pending"}}));
    state.apply(at(9), &change(&written));
    assert!(is_idle(&mut state, 9));
    let picky = pod_with("a", &json!({"spec": {"nodeSelector": {"a": "b"}}}));
    state.apply(at(9), &change(&picky));
    assert!(reject(&mut state, 9).contains("node affinity/selector"));
}

#[test]
fn a_pod_whose_binding_failed_is_placed_again() {
    let mut state = state(&[change(&pod("a")), node("n1", 1)]);
    let (attempt, _) = placed(&mut state, 0);
    assert!(
        place(&mut state, at(0), &pod("b")).is_err(),
        "it counts on its node"
    );
    state.finish(at(0), attempt, Outcome::Failed);
    assert_eq!(place(&mut state, at(0), &pod("b")), Ok("n1".to_owned()));
    assert!(is_idle(&mut state, 0), "it is backing off");
    state.apply(at(1), &gone("b"));
    let (attempt, node) = placed(&mut state, 1);
    assert_eq!((node.as_str(), attempt.number()), ("n1", 2));
}

#[test]
fn a_bound_pod_is_not_bound_again_for_an_older_update_that_comes_late() {
    let mut state = state(&[change(&pod("a")), node("n1", 1)]);
    let (attempt, _) = placed(&mut state, 0);
    state.finish(at(0), attempt, Outcome::Bound);
    let labelled = pod_with("a", &json!({"metadata": {"labels": {"late": "yes"}}}));
    state.apply(at(20), &change(&labelled));
    assert!(is_idle(&mut state, 20), "its binding is written");
    assert!(
        place(&mut state, at(20), &pod("b")).is_err(),
        "it counts on its node"
    );
    state.apply(at(21), &gone("a"));
    assert_eq!(place(&mut state, at(21), &pod("b")), Ok("n1".to_owned()));
}

#[test]
fn a_pod_of_another_scheduler_is_left_alone() {
    let other = pod_with("a", &json!({"spec": {"schedulerName": "other"}}));
    let mut state = state(&[node("n1", 1), change(&other)]);
    assert!(is_idle(&mut state, 0));
    let refused = place(&mut state, at(0), &other).unwrap_err();
    assert!(refused.contains("\"other\""), "{refused}");
}

#[test]
fn a_gated_pod_is_reported_and_waits() {
    let gated = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
    let mut state = state(&[node("n1", 1), change(&pod_with("a", &gated))]);
    let report = write(&mut state, 0).unwrap();
    let Verdict::Rejected(rejection) = report.verdict else {
        panic!("not rejected");
    };
    assert_eq!(rejection.reason, Reason::SchedulingGated);
    assert!(report.attempt.is_none() && is_idle(&mut state, 0));
    state.apply(at(1), &change(&pod("a")));
    assert_eq!(placed(&mut state, 1).1, "n1");
}

#[test]
fn a_report_that_is_not_true_anymore_is_not_written_and_others_come_in_order() {
    let gated = |name: &str| {
        let gates = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
        change(&pod_with(name, &gates))
    };
    let mut state = state(&["a", "b", "c", "d"].map(gated));
    state.apply(at(1), &gone("a"));
    state.apply(at(1), &change(&on("c", "n1")));
    let mut reported = Vec::new();
    while let Some(work) = write(&mut state, 1) {
        reported.push(work.pod.metadata.name.clone().unwrap());
    }
    assert_eq!(reported, ["b", "d"]);
    state.apply(at(2), &gated("a"));
    state.apply(at(2), &node("n1", 9));
    state.apply(at(2), &change(&pod("a")));
    assert_eq!(placed(&mut state, 2).1, "n1", "its gate is gone");
}

#[test]
fn a_write_of_its_status_changes_nothing_for_decisions() {
    let mut state = state(&[node("n1", 9), change(&pod("a"))]);
    let (attempt, _) = placed(&mut state, 0);
    state.finish(at(0), attempt, Outcome::Bound);
    let followed = |state: &mut State| {
        let mut events = Vec::new();
        let Decider::Engine(engine) = &mut state.decider else {
            panic!("an engine decides");
        };
        engine.cluster().refresh_into(&mut events);
        events.len()
    };
    followed(&mut state);
    state.apply(at(1), &change(&on("a", "n1")));
    assert_eq!(
        followed(&mut state),
        0,
        "the binding comes as it was assumed"
    );
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let running =
        json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "conditions": ready}});
    state.apply(at(2), &change(&pod_with("a", &running)));
    assert_eq!(followed(&mut state), 0, "its status is written");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n1"}});
    state.apply(at(3), &change(&pod_with("a", &labelled)));
    assert_eq!(followed(&mut state), 2, "it is replaced");
}

#[test]
fn the_explanation_has_each_reason_and_the_scores_of_the_best_nodes() {
    let mut state = state(&[
        node("n1", 9),
        node("n2", 9),
        node("full", 0),
        change(&on("b", "n1")),
    ]);
    state.apply(
        at(0),
        &change(&pod_with(
            "a",
            &json!({"spec": {"nodeSelector": {"x": "y"}}}),
        )),
    );
    reject(&mut state, 0);
    let lines = |topics: &[Topic], name: &str| {
        let found = topics.iter().find(|topic| topic.name == name);
        found.map_or(String::new(), |topic| topic.lines.join("\n"))
    };
    let waits = state.explanation(at(7), &key("a")).unwrap().topics();
    assert!(
        lines(&waits, "scheduler")
            .contains("attempts: 1, the first 7s ago, rejected by NodeAffinity")
    );
    assert!(lines(&waits, "filtered").starts_with("3 nodes: NodeAffinity: node(s) didn't match"));
    let bound = state.explanation(at(7), &key("b")).unwrap().topics();
    assert!(lines(&bound, "scheduler").starts_with("on n1"));
    assert!(lines(&bound, "filtered").contains("1 nodes: NodeResourcesFit: Too many pods (full)"));
    let scores = lines(&bound, "scores");
    assert!(
        scores.contains("TaintToleration×3") && scores.contains("n1*") && scores.contains("n2 "),
        "{scores}"
    );
    assert!(state.explanation(at(7), &key("nobody")).is_none());
    assert_eq!(
        place(&mut state, at(7), &on("b", "")).unwrap(),
        "n1",
        "b still counts on its node"
    );
}

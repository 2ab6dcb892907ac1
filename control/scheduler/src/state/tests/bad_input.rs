//! Input that is malformed, late, repeated, or about what is gone.

use super::*;

fn requests(name: &str, cpu: &str) -> Arc<ApiPod> {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    pod_with(name, &json!({"spec": {"containers": [container]}}))
}

#[test]
fn a_node_with_negative_or_absurd_quantities_gets_no_pod_that_does_not_fit() {
    let mut state = state(&[]);
    for (name, cpu, pods) in [
        ("negative", "-4", "-9"),
        ("huge", "9223372036854775807", "0"),
        ("dust", "1n", "1"),
    ] {
        state.apply(
            at(0),
            &node_of(name, &json!({"cpu": cpu, "memory": "8Ei", "pods": pods})),
        );
    }
    let refused = place(&mut state, at(0), &requests("a", "1")).unwrap_err();
    assert!(
        refused.starts_with("0/3 nodes are available: "),
        "{refused}"
    );
    state.apply(at(0), &node("sound", 9));
    assert_eq!(
        place(&mut state, at(0), &requests("a", "1")),
        Ok("sound".to_owned())
    );
}

#[test]
fn a_node_that_cannot_be_read_gets_no_pods_until_it_can() {
    let mut state = state(&[node("n1", 9), change(&pod("a"))]);
    state.apply(at(0), &node_of("n1", &json!({"cpu": "four", "pods": "9"})));
    assert_eq!(reject(&mut state, 0), "no nodes available to schedule pods");
    state.apply(at(9), &node("n1", 9));
    assert_eq!(placed(&mut state, 9).1, "n1");
}

#[test]
fn a_pod_that_cannot_be_read_is_reported_once_and_decided_on_when_it_is_mended() {
    let mut state = state(&[node("n1", 9), change(&requests("a", "a lot"))]);
    let report = write(&mut state, 0).unwrap();
    let Verdict::Rejected(rejection) = report.verdict else {
        panic!("not rejected");
    };
    let message = "the pod cannot be read: spec.containers[0].resources.requests[cpu]: ";
    assert!(
        rejection.message.starts_with(message),
        "{}",
        rejection.message
    );
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": rejection.message});
    let mut reported = ApiPod::clone(&requests("a", "a lot"));
    reported.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    state.apply(at(1), &change(&Arc::new(reported)));
    assert!(is_idle(&mut state, 1), "the report itself changed the pod");
    state.apply(at(2), &change(&requests("a", "1")));
    assert_eq!(placed(&mut state, 2).1, "n1");
}

#[test]
fn a_bound_pod_whose_requests_cannot_be_read_still_counts_as_a_pod() {
    let mut broken = ApiPod::clone(&requests("a", "a lot"));
    broken.spec.as_mut().unwrap().node_name = Some("n1".to_owned());
    let mut state = state(&[node("n1", 1), change(&Arc::new(broken))]);
    assert!(place(&mut state, at(0), &pod("b")).is_err());
}

#[test]
fn a_selector_that_cannot_be_parsed_fails_the_attempt_of_its_own_pod_alone() {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
    let anti =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let broken = pod_with(
        "broken",
        &json!({"spec": {"affinity": anti, "priority": 9}}),
    );
    let mut state = state(&[node("n1", 9), change(&broken), change(&pod("sound"))]);
    let work = write(&mut state, 0).unwrap();
    assert!(
        matches!(work.verdict, Verdict::Rejected(_)),
        "{:?}",
        work.verdict
    );
    state.finish(at(0), work.attempt.unwrap(), Outcome::Error);
    assert_eq!(placed(&mut state, 0).1, "n1");
}

#[test]
fn a_pod_that_is_deleted_during_its_attempt_is_not_tried_again() {
    let mut state = state(&[change(&pod("a")), node("n1", 1)]);
    let (attempt, _) = placed(&mut state, 0);
    state.apply(at(0), &gone("a"));
    state.finish(at(0), attempt, Outcome::Failed);
    assert!(is_idle(&mut state, 60));
    assert_eq!(
        place(&mut state, at(60), &pod("b")),
        Ok("n1".to_owned()),
        "its place is free"
    );
}

#[test]
fn a_rejected_pod_that_is_deleted_during_its_attempt_is_not_tried_again() {
    let mut state = state(&[change(&pod("a"))]);
    let (attempt, _) = next(&mut state, 0).unwrap();
    state.apply(at(0), &gone("a"));
    state.finish(at(0), attempt, Outcome::Rejected);
    state.apply(at(9), &node("n1", 1));
    assert!(is_idle(&mut state, 9));
}

#[test]
fn the_end_of_an_old_binding_has_no_effect_on_a_new_pod_of_the_same_name() {
    let mut state = state(&[change(&pod("a")), node("n1", 1)]);
    let (old, _) = placed(&mut state, 0);
    let new = pod_with("a", &json!({"metadata": {"uid": "new"}}));
    state.apply(at(1), &change(&new));
    let (attempt, _) = placed(&mut state, 1);
    state.finish(at(2), old, Outcome::Failed);
    assert!(
        place(&mut state, at(2), &pod("b")).is_err(),
        "the new pod counts"
    );
    state.finish(at(2), attempt, Outcome::Bound);
    assert!(is_idle(&mut state, 60));
}

#[test]
fn a_pod_is_tried_again_when_its_node_was_deleted_after_the_decision() {
    let mut state = state(&[change(&pod("a")), node("n1", 1)]);
    let (attempt, _) = placed(&mut state, 0);
    state.apply(at(0), &Change::Node(Key::cluster_scoped("n1"), None));
    state.finish(at(0), attempt, Outcome::Failed);
    state.apply(at(1), &node("n2", 1));
    assert_eq!(placed(&mut state, 1).1, "n2");
}

#[test]
fn repeated_and_late_changes_of_a_pod_have_no_effect() {
    let at_revision = |revision: &str, node: &str| {
        pod_with(
            "a",
            &json!({"metadata": {"resourceVersion": revision}, "spec": {"nodeName": node}}),
        )
    };
    let bound = at_revision("7", "n1");
    let mut state = state(&[node("n1", 1), change(&bound), change(&bound)]);
    state.apply(at(0), &change(&at_revision("5", "")));
    assert!(is_idle(&mut state, 0), "it waited before it was bound");
    assert!(place(&mut state, at(0), &pod("b")).is_err());
    state.apply(at(0), &gone("a"));
    state.apply(at(0), &gone("a"));
    assert_eq!(place(&mut state, at(0), &pod("b")), Ok("n1".to_owned()));
}

#[test]
fn a_pod_may_be_seen_before_its_node() {
    let mut state = state(&[change(&on("a", "n1")), change(&pod("b")), node("n1", 1)]);
    assert!(reject(&mut state, 0).contains("Too many pods"));
    state.apply(at(9), &Change::Node(Key::cluster_scoped("n1"), None));
    state.apply(at(9), &gone("a"));
    state.apply(at(9), &node("n1", 1));
    assert_eq!(placed(&mut state, 9).1, "n1");
}

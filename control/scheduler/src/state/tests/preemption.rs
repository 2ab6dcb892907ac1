//! Preemption: victims, nominations, and the pod that waits for its victims to go.

use super::*;

fn priority(name: &str, priority: i32, node: &str) -> Arc<ApiPod> {
    let node = if node.is_empty() {
        Value::Null
    } else {
        node.into()
    };
    pod_with(
        name,
        &json!({"spec": {"priority": priority, "nodeName": node}}),
    )
}

fn rejection(state: &mut State, now: i64) -> (Attempt, Rejection) {
    let work = write(state, now).unwrap();
    let Verdict::Rejected(rejection) = work.verdict else {
        panic!("not rejected");
    };
    (work.attempt.unwrap(), rejection)
}

fn victims(rejection: &Rejection) -> Vec<&str> {
    let eviction = rejection.eviction.as_ref().unwrap();
    eviction
        .victims
        .iter()
        .map(|victim| victim.uid.as_str())
        .collect()
}

#[test]
fn a_pod_of_higher_priority_gets_the_place_of_its_victim() {
    let mut state = state(&[node("n1", 1), change(&priority("low", 1, "n1"))]);
    state.apply(at(0), &change(&priority("high", 5, "")));
    let (attempt, rejection) = rejection(&mut state, 0);
    assert_eq!(victims(&rejection), ["low"]);
    assert_eq!(rejection.nominated.as_deref(), Some("n1"));
    assert!(is_idle(&mut state, 0), "its victim is being evicted");
    // The victim is gone before its eviction is reported.
    state.apply(at(1), &gone("low"));
    let refused = place(&mut state, at(1), &priority("middle", 3, "")).unwrap_err();
    assert!(
        refused.contains("Too many pods"),
        "the place is the nominated pod's: {refused}"
    );
    state.finish(at(1), attempt, Outcome::Rejected);
    assert_eq!(placed(&mut state, 1).1, "n1");
}

#[test]
fn the_pod_is_tried_again_when_its_victim_goes_after_the_eviction_was_reported() {
    let mut state = state(&[node("n1", 1), change(&priority("low", 1, "n1"))]);
    state.apply(at(0), &change(&priority("high", 5, "")));
    let (attempt, _) = rejection(&mut state, 0);
    state.finish(at(0), attempt, Outcome::Rejected);
    assert!(is_idle(&mut state, 9), "the victim is still there");
    state.apply(at(9), &gone("low"));
    assert_eq!(placed(&mut state, 9).1, "n1");
}

#[test]
fn a_write_of_the_condition_does_not_end_a_nomination_that_is_not_written_yet() {
    let mut state = state(&[node("n1", 1), change(&priority("low", 1, "n1"))]);
    state.apply(at(0), &change(&priority("high", 5, "")));
    let (attempt, _) = rejection(&mut state, 0);
    let written = json!({"spec": {"priority": 5}, "status": {"phase": "Pending"}});
    state.apply(at(1), &change(&pod_with("high", &written)));
    state.apply(at(1), &gone("low"));
    assert!(place(&mut state, at(1), &priority("middle", 3, "")).is_err());
    state.finish(at(1), attempt, Outcome::Rejected);
    assert_eq!(placed(&mut state, 1).1, "n1");
}

#[test]
fn a_pod_of_lower_priority_loses_its_nomination_to_the_node() {
    let nominated = json!({"spec": {"priority": 3}, "status": {"nominatedNodeName": "n1"}});
    let mut state = state(&[node("n1", 1), change(&priority("low", 1, "n1"))]);
    state.apply(at(0), &change(&pod_with("middle", &nominated)));
    let (attempt, _) = rejection(&mut state, 0);
    state.finish(at(0), attempt, Outcome::Rejected);
    state.apply(at(0), &change(&priority("high", 5, "")));
    let (_, rejection) = rejection(&mut state, 0);
    let eviction = rejection.eviction.unwrap();
    assert_eq!(
        (eviction.node.as_str(), eviction.cleared),
        ("n1", vec![key("middle")])
    );
}

#[test]
fn a_pod_that_never_preempts_waits() {
    let never = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
    let mut state = state(&[node("n1", 1), change(&priority("low", 1, "n1"))]);
    state.apply(at(0), &change(&pod_with("high", &never)));
    let (_, rejection) = rejection(&mut state, 0);
    assert_eq!(rejection.eviction, None);
    assert!(
        rejection.message.contains("preemptionPolicy=Never"),
        "{}",
        rejection.message
    );
}

#[test]
fn a_nomination_that_is_of_no_use_is_removed() {
    let lost = json!({"spec": {"priority": 5}, "status": {"nominatedNodeName": "gone"}});
    let mut state = state(&[node("n1", 0), change(&pod_with("high", &lost))]);
    let (_, rejection) = rejection(&mut state, 0);
    assert_eq!(
        (rejection.nominated.as_deref(), rejection.eviction),
        (Some(""), None)
    );
}

//! Announced pods: decided on early, bound only once they are seen, dropped if they do not come.

use super::*;

fn announced(changes: &[Change], pods: &[&str]) -> State {
    let mut state = state(changes);
    for name in pods {
        state.announce(at(0), &pod(name));
    }
    state
}

fn is_early(state: &mut State, now: i64) -> bool {
    matches!(state.step(at(now)), Some(Step::Early))
}

#[test]
fn an_announced_pod_counts_on_its_node_and_is_bound_once_when_it_is_seen() {
    let mut state = announced(&[node("n1", 1)], &["a"]);
    assert!(is_early(&mut state, 0));
    assert!(is_idle(&mut state, 0), "it is not seen yet");
    assert!(place(&mut state, at(0), &pod("b")).is_err(), "it counts");
    state.announce(at(1), &pod("a"));
    assert!(
        is_idle(&mut state, 1),
        "the repeated announcement is nothing new"
    );
    state.apply(at(2), &change(&pod("a")));
    let (attempt, node) = placed(&mut state, 2);
    assert_eq!(node, "n1");
    state.announce(at(2), &pod("a"));
    state.finish(at(2), attempt, Outcome::Bound);
    state.announce(at(3), &pod("a"));
    assert!(is_idle(&mut state, 3), "it is bound once");
    state.tick(at(60));
    assert!(
        place(&mut state, at(60), &pod("b")).is_err(),
        "it still counts"
    );
}

#[test]
fn a_pod_that_is_seen_before_its_announcement_is_decided_on_once() {
    let mut state = state(&[node("n1", 1), change(&pod("a"))]);
    state.announce(at(0), &pod("a"));
    assert_eq!(placed(&mut state, 0).1, "n1");
    assert!(is_idle(&mut state, 0));
}

#[test]
fn a_pod_that_does_not_come_is_dropped_and_never_bound() {
    let ttl = ANNOUNCED_TTL.as_secs();
    let mut state = announced(&[node("n1", 1)], &["a"]);
    assert!(is_early(&mut state, 0));
    state.announce(at(1), &pod("waits"));
    state.tick(at(ttl));
    assert_eq!(place(&mut state, at(ttl), &pod("b")), Ok("n1".to_owned()));
    state.tick(at(ttl + 1));
    assert!(is_idle(&mut state, ttl + 1));
    assert_eq!(state.lengths(), Lengths::default());
}

#[test]
fn a_pod_of_the_same_name_and_another_uid_takes_the_place_of_the_announced_one() {
    let mut state = announced(&[node("n1", 1)], &["a"]);
    assert!(is_early(&mut state, 0));
    let other = pod_with(
        "a",
        &json!({"metadata": {"uid": "other"}, "spec": {"nodeSelector": {"x": "y"}}}),
    );
    state.announce(at(1), &other);
    assert!(is_early(&mut state, 1), "no node can have it");
    assert_eq!(place(&mut state, at(1), &pod("b")), Ok("n1".to_owned()));
    state.apply(at(2), &change(&pod("a")));
    assert!(
        reject(&mut state, 2).contains("Too many pods"),
        "the first one was stored"
    );
}

#[test]
fn nothing_is_written_and_no_pod_is_evicted_for_an_announced_pod() {
    let mut state = state(&[node("n1", 1), change(&on("low", "n1"))]);
    let high = pod_with("high", &json!({"spec": {"priority": 9}}));
    state.announce(at(0), &high);
    assert!(is_early(&mut state, 0));
    assert!(is_idle(&mut state, 0));
    state.apply(at(1), &change(&high));
    let work = write(&mut state, 1).unwrap();
    let Verdict::Rejected(rejection) = work.verdict else {
        panic!("not rejected");
    };
    assert_eq!(rejection.eviction.unwrap().victims[0].key, key("low"));
}

#[test]
fn announced_pods_are_decided_on_in_the_order_of_their_priority() {
    let mut state = announced(&[node("n1", 1)], &["low"]);
    let high = pod_with("high", &json!({"spec": {"priority": 9}}));
    state.announce(at(1), &high);
    assert!(is_early(&mut state, 1) && is_early(&mut state, 1));
    state.apply(at(2), &change(&high));
    assert_eq!(placed(&mut state, 2).1, "n1");
}

#[test]
fn pods_that_are_not_to_be_scheduled_and_too_many_are_not_taken() {
    let mut state = state(&[node("n1", 1)]);
    for more in [
        json!({"metadata": {"uid": ""}}),
        json!({"spec": {"schedulerName": "other"}}),
        json!({"spec": {"nodeName": "n1"}}),
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}}),
    ] {
        state.announce(at(0), &pod_with("a", &more));
        assert!(is_idle(&mut state, 0), "{more}");
    }
    for number in 0..=ANNOUNCED_MAX {
        state.announce(at(0), &pod(&format!("p{number}")));
    }
    assert_eq!(state.lengths().active, ANNOUNCED_MAX);
    state.tick(at(ANNOUNCED_TTL.as_secs()));
    assert_eq!(state.lengths().active, 0);
}

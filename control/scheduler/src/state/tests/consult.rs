//! Extenders in an attempt: what they are asked, and the cluster that changes meanwhile.

use dormouse_scheduler_decide::{Configuration, Status};

use super::*;

fn extended(changes: &[Change]) -> State {
    let extender = json!({"urlPrefix": "http://x", "filterVerb": "filter"});
    let document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
    let Configuration {
        profiles,
        extenders,
    } = Configuration::parse(&document).unwrap();
    let mut state = State::new(profiles, 1).with_extenders(extenders);
    for change in changes {
        state.apply(at(0), change);
    }
    state
}

fn ask(step: Option<Step>) -> Consultation {
    match step {
        Some(Step::Ask(consultation)) => *consultation,
        other => panic!("nothing is asked: {other:?}"),
    }
}

fn verdict(step: Option<Step>) -> (Attempt, Result<String, Rejection>) {
    let Some(Step::Write(work)) = step else {
        panic!("nothing is to be written: {step:?}");
    };
    let verdict = match work.verdict {
        Verdict::Placed(node) => Ok(node),
        Verdict::Rejected(rejection) => Err(rejection),
    };
    (work.attempt.unwrap(), verdict)
}

fn names(consultation: &Consultation) -> Vec<&str> {
    let nodes = consultation.nodes.iter();
    let mut names: Vec<_> = nodes.map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn veto(name: &str, status: Status) -> Replies {
    Replies {
        vetoes: [(name.to_owned(), Some(status))].into(),
        ..Replies::default()
    }
}

#[test]
fn a_pod_is_decided_on_with_the_replies_while_others_are_asked_about() {
    let mut state = extended(&[
        node("n1", 1),
        node("n2", 1),
        change(&pod("a")),
        change(&pod("b")),
    ]);
    let first = ask(state.step(at(0)));
    let second = ask(state.step(at(0)));
    assert_eq!(names(&first), ["n1", "n2"]);
    assert!(first.nodes.iter().all(|node| node.object.is_some()));
    let step = state.consulted(second, Ok(veto("n1", Status::unschedulable("no"))));
    assert_eq!(verdict(step).1.unwrap(), "n2");
    // n2 was taken meanwhile.
    let step = state.consulted(first, Ok(Replies::default()));
    assert_eq!(verdict(step).1.unwrap(), "n1");
}

#[test]
fn a_node_that_has_come_meanwhile_is_asked_about_first() {
    let mut state = extended(&[node("n1", 1), change(&pod("a"))]);
    let asked = ask(state.step(at(0)));
    state.apply(at(0), &node("n2", 1));
    let asked = ask(state.consulted(asked, Ok(Replies::default())));
    assert_eq!(names(&asked), ["n1", "n2"]);
    let step = state.consulted(asked, Ok(veto("n1", Status::unschedulable("no"))));
    assert_eq!(verdict(step).1.unwrap(), "n2");
}

#[test]
fn the_reply_about_a_pod_that_is_gone_has_no_effect() {
    let mut state = extended(&[node("n1", 1), change(&pod("a"))]);
    let asked = ask(state.step(at(0)));
    state.apply(at(1), &gone("a"));
    assert!(state.consulted(asked, Ok(Replies::default())).is_none());
    state.apply(at(2), &change(&pod("a")));
    let asked = ask(state.step(at(2)));
    let (attempt, verdict) = verdict(state.consulted(asked, Err("down".to_owned())));
    let rejection = verdict.unwrap_err();
    assert_eq!(
        (rejection.message.as_str(), rejection.reason),
        ("down", Reason::SchedulerError)
    );
    state.finish(at(2), attempt, Outcome::Error);
    assert!(is_idle(&mut state, 2), "it backs off");
    assert_eq!(names(&ask(state.step(at(3)))), ["n1"]);
}

#[test]
fn no_pod_is_evicted_from_a_node_that_only_an_extender_rejects() {
    for status in [Status::unschedulable("full"), Status::unresolvable("never")] {
        let high = pod_with("high", &json!({"spec": {"priority": 9}}));
        let mut state = extended(&[node("n1", 2), change(&on("low", "n1")), change(&high)]);
        let asked = ask(state.step(at(0)));
        let text = format!("0/1 nodes are available: 1 {}.", status.message());
        let (attempt, verdict) = verdict(state.consulted(asked, Ok(veto("n1", status))));
        let rejection = verdict.unwrap_err();
        assert!(
            rejection.message.starts_with(&text),
            "{}",
            rejection.message
        );
        assert_eq!(rejection.eviction, None);
        state.finish(at(0), attempt, Outcome::Rejected);
        assert!(is_idle(&mut state, 0), "it backs off");
        assert_eq!(names(&ask(state.step(at(1)))), ["n1"], "no event is needed");
    }
}

#[test]
fn extenders_are_asked_only_about_pods_that_exist() {
    let mut state = extended(&[node("n1", 1)]);
    state.announce(at(0), &pod("a"));
    assert!(matches!(state.step(at(0)), Some(Step::Early)));
    assert!(place(&mut state, at(0), &pod("b")).is_err());
    state.apply(at(1), &change(&pod("a")));
    assert_eq!(names(&ask(state.step(at(1)))), ["n1"]);
}

//! Updates of pods: reports that are not true anymore, and writes that change nothing for decisions.

use super::*;

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

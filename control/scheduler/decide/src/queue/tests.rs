//! The queue: its order, the events of changes, and what plugins answer.

use serde_json::{Value, json};

use super::*;
use crate::node::Node;

fn pod(name: &str, node: &str, more: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node, "containers": []}});
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "labels" => pod["metadata"][key] = value.clone(),
            _ => pod["spec"][key] = value.clone(),
        }
    }
    Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()
}

fn node(cpu: &str, unschedulable: bool) -> Node {
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": unschedulable},
        "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
    Node::parse(&serde_json::from_value(node).unwrap()).unwrap()
}

fn names(change: Change<'_>) -> Vec<String> {
    events(change).iter().map(ToString::to_string).collect()
}

fn helps(plugin: Plugin, rejected: &Pod, change: Change<'_>) -> bool {
    let (profile, snapshot) = (Profile::default(), Snapshot::default());
    let rejectors = BTreeSet::from([plugin]);
    let answer = |event| hint((&profile, &snapshot), rejected, &rejectors, event, change);
    let answers: Vec<_> = events(change).into_iter().map(answer).collect();
    answers.contains(&Hint::QueueAfterBackoff)
}

#[test]
fn higher_priorities_are_first_and_then_older_pods() {
    let place = |priority, second| Place::new(priority, Timestamp::from_second(second).unwrap());
    let mut all = [place(0, 1), place(5, 9), place(0, 0), place(5, 3)];
    all.sort();
    assert_eq!(all, [place(5, 3), place(5, 9), place(0, 0), place(0, 1)]);
}

#[test]
fn changes_and_their_events() {
    let (waiting, bound) = (pod("p", "", &json!({})), pod("p", "n", &json!({})));
    let of = |old, new| names(Change::Pod { old, new });
    assert_eq!(of(None, Some(&waiting)), ["UnschedulablePodAdd"]);
    assert_eq!(of(Some(&waiting), Some(&bound)), ["AssignedPodAdd"]);
    assert_eq!(of(Some(&bound), None), ["AssignedPodDelete"]);
    assert_eq!(of(Some(&bound), Some(&bound)), ["AssignedPodUpdate"]);
    let labelled = pod("p", "n", &json!({"labels": {"a": "b"}}));
    assert_eq!(
        of(Some(&bound), Some(&labelled)),
        ["AssignedPodUpdatePodLabel"]
    );
    let (small, large) = (node("1", true), node("2", false));
    let of = |old, new| names(Change::Node { old, new });
    assert_eq!(
        of(Some(&small), Some(&large)),
        ["NodeUpdateNodeTaint", "NodeUpdateNodeAllocatable"]
    );
    assert_eq!(of(Some(&large), Some(&large)), [""; 0]);
    assert_eq!(of(Some(&large), None), ["NodeDelete"]);
}

#[test]
fn more_room_helps_a_pod_that_did_not_fit() {
    let rejected = pod(
        "p",
        "",
        &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
    );
    let (small, large, larger) = (node("1", false), node("2", false), node("3", false));
    let grows = |old, new| {
        let (old, new) = (Some(old), Some(new));
        helps(
            Plugin::NodeResourcesFit,
            &rejected,
            Change::Node { old, new },
        )
    };
    assert!(grows(&small, &large) && grows(&large, &larger));
    assert!(!grows(&large, &small) && !grows(&larger, &large));
    let other = pod("q", "n", &json!({}));
    let gone = |old| {
        helps(
            Plugin::NodeResourcesFit,
            &rejected,
            Change::Pod { old, new: None },
        )
    };
    assert!(gone(Some(&other)));
    assert!(!gone(Some(&pod("q", "", &json!({})))));
}

#[test]
fn a_pod_that_no_plugin_rejected_is_tried_again_after_any_event() {
    let (profile, snapshot) = (Profile::default(), Snapshot::default());
    let rejected = pod("p", "", &json!({}));
    let (old, new) = (node("1", false), node("2", false));
    let change = Change::Node {
        old: Some(&old),
        new: Some(&new),
    };
    let event = events(change)[0];
    let answer = hint(
        (&profile, &snapshot),
        &rejected,
        &BTreeSet::new(),
        event,
        change,
    );
    assert_eq!(answer, Hint::QueueAfterBackoff);
}

#[test]
fn gates_that_are_gone_help_only_their_own_pod() {
    let gated = pod("p", "", &json!({"schedulingGates": [{"name": "a"}]}));
    let (free, other) = (pod("p", "", &json!({})), pod("q", "", &json!({})));
    let ungated = |rejected: &Pod| {
        let (old, new) = (Some(&gated), Some(&free));
        helps(Plugin::SchedulingGates, rejected, Change::Pod { old, new })
    };
    assert!(ungated(&gated) && !ungated(&other));
}

#[test]
fn a_new_claim_helps_pods_of_its_namespace_and_no_plugin_but_those_of_volumes() {
    let change = |kind, change| Change::Volume {
        kind,
        namespace: "default",
        change,
    };
    let claim = change(VolumeKind::PersistentVolumeClaim, VolumeChange::Added);
    assert_eq!(names(claim), ["PersistentVolumeClaimAdd"]);
    let mine = pod("p", "", &json!({}));
    let mut theirs = mine.clone();
    theirs.key.namespace = "other".to_owned();
    assert!(helps(Plugin::VolumeBinding, &mine, claim));
    assert!(!helps(Plugin::VolumeBinding, &theirs, claim));
    assert!(!helps(Plugin::NodeResourcesFit, &mine, claim));
    let attachment = |changed| change(VolumeKind::VolumeAttachment, changed);
    let limits = Plugin::NodeVolumeLimits;
    assert!(helps(limits, &theirs, attachment(VolumeChange::Deleted)));
    assert!(!helps(limits, &theirs, attachment(VolumeChange::Added)));
}

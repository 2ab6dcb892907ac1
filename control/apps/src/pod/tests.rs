//! Pod objects: creation, names and status.

use dormouse_cluster::{AppSpec, children};

use dormouse_fleet::proto::pod_status::Phase;
use k8s_openapi::jiff::Timestamp;

use super::*;

fn app(json: serde_json::Value) -> App {
    let spec: AppSpec = serde_json::from_value(json).unwrap();
    let mut app = App::new("docs", spec);
    app.metadata.namespace = Some("default".into());
    app
}

#[test]
fn a_pod_has_its_app_its_port_and_a_probe_and_no_two_share_a_name() {
    let app =
        app(serde_json::json!({"port": 80, "targetPort": 8000, "container": {"name": "app"}}));
    let names = Names::new(1);
    let new = || of(&app, 7, template(&app), &names);
    let (first, second) = (new(), new());
    assert_eq!(owner_of(&first), Some((Key::new("default", "docs"), 7)));
    assert_ne!(first.metadata.name, second.metadata.name);
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let container = &first.spec.as_ref().unwrap().containers[0];
    assert_eq!(container.ports.as_ref().unwrap()[0].container_port, 8000);
    assert!(container.readiness_probe.is_some());
    assert_eq!(observe(&first).template, template(&app));
}

#[test]
fn a_pod_has_the_name_of_the_revision_that_it_runs_also_in_a_child() {
    let parent = app(serde_json::json!({"container": {"name": "app"}}));
    let child = children::child(&parent, 2, parent.spec.template(), None);
    for (app, revision) in [(&parent, "docs-1"), (&child, "docs-2")] {
        let labels = of(app, 7, template(app), &Names::new(1)).metadata.labels;
        assert_eq!(labels.unwrap()[REVISION_LABEL], revision);
    }
}

#[test]
fn a_long_name_leaves_room_for_the_suffix() {
    let name = Names::new(1).name(&"x".repeat(80));
    assert_eq!(name.len(), NAME_MAX);
}

#[test]
fn a_status_of_another_pod_of_the_same_name_is_ignored() {
    let app = app(serde_json::json!({"container": {"name": "app"}}));
    let mut pod = of(&app, 7, template(&app), &Names::new(1));
    let mut reported = proto::PodStatus {
        uid: "another".into(),
        ready: true,
        ..Default::default()
    };
    reported.set_phase(Phase::Running);
    reported.address = "2001:db8::7".into();
    assert!(!write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH));
    reported.uid = pod.metadata.uid.clone().unwrap();
    assert!(write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH));
    assert_eq!(observe(&pod).ready, Some("2001:db8::7".parse().unwrap()));
    assert!(
        !write_status(&mut pod, &reported, Timestamp::now()),
        "the same status changes nothing"
    );
    reported.set_phase(Phase::Gone);
    assert!(write_status(&mut pod, &reported, Timestamp::now()));
    assert_eq!(observe(&pod).ended, Some(Failure::new("Gone", "")));
}

#[test]
fn a_pod_that_runs_and_is_not_ready_has_the_reason_until_it_is_ready() {
    let app = app(serde_json::json!({"container": {"name": "app"}}));
    let mut pod = of(&app, 7, template(&app), &Names::new(1));
    let mut reported = proto::PodStatus {
        uid: pod.metadata.uid.clone().unwrap(),
        reason: "NotListening".into(),
        message: "nothing listens on port 80".into(),
        ..Default::default()
    };
    reported.set_phase(Phase::Running);
    assert!(write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH));
    let waiting = Failure::new("NotListening", "nothing listens on port 80");
    assert_eq!(observe(&pod).waiting, Some(waiting));
    let status = pod.status.clone().unwrap();
    assert_eq!((status.reason, status.message), (None, None));
    (reported.reason, reported.message) = (String::new(), String::new());
    reported.ready = true;
    reported.address = "2001:db8::7".into();
    assert!(write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH));
    assert_eq!(observe(&pod).waiting, None);
}

#[test]
fn an_ended_container_has_its_exit_code_reason_and_message() {
    let app = app(serde_json::json!({"container": {"name": "app"}}));
    let check = |phase: Phase, reported_code: i32, code: i32| {
        let mut pod = of(&app, 7, template(&app), &Names::new(1));
        let mut reported = proto::PodStatus {
            reason: "Error".into(),
            message: "why".into(),
            exit_code: reported_code,
            ..Default::default()
        };
        reported.set_phase(phase);
        write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH);
        let status = pod.status.unwrap();
        let container = &status.container_statuses.unwrap()[0];
        let ended = container.state.clone().unwrap().terminated.unwrap();
        assert_eq!(ended.exit_code, code);
        assert_eq!(
            (ended.reason, ended.message),
            (status.reason, status.message)
        );
    };
    check(Phase::Failed, 137, 137);
    check(Phase::Failed, 0, 1);
    check(Phase::Succeeded, 0, 0);
}

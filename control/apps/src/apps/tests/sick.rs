//! Apps whose pods fail or do not become ready: the reason reaches status, events, `explain`, the timeline and clients.

use dormouse_activator::{Fault, FaultKind, Unanswered};
use dormouse_cluster::Mode;
use serde_json::json;

use super::small;
use super::world::{VIP, World};
use crate::action::Failure;

#[test]
fn clients_get_the_reason_of_a_failure_and_are_refused_from_the_third_on_until_a_pod_is_ready() {
    let mut world = small();
    world.demand();
    world.execute_all();
    let problem = |world: &World| world.route.as_ref().and_then(|route| route.problem.clone());
    assert_eq!(problem(&world), None);
    let mut refused = Vec::new();
    for _ in 0..3 {
        world.fail_one("Error");
        world.execute_all();
        let problem = problem(&world).expect("no reason");
        assert!(problem.message.contains("Error"), "{problem:?}");
        refused.push(problem.retry_after.map(|after| after.as_secs()));
        while world.pods.is_empty() {
            world.tick(1.0);
            world.execute_all();
        }
    }
    assert_eq!(refused, [None, None, Some(20)]);
    world.ready_all();
    assert_eq!(problem(&world), None);
}

#[test]
fn the_reason_of_a_pod_that_is_not_ready_is_shown_until_it_is_ready() {
    let mut world = small();
    world.demand();
    world.execute_all();
    let message = "nothing listens on port 80; the process listens on 8080";
    for _ in 0..2 {
        world.unready_all("NotListening", message);
    }
    let failure = world.status().failure.unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("NotListening", message)
    );
    let event = ("NotListening".to_owned(), message.to_owned());
    assert_eq!(world.events, [event], "one event for one reason");
    let explain = |world: &World| {
        crate::explain::explain(&world.apps.records[&VIP], None, world.now).to_string()
    };
    let text = explain(&world);
    assert!(
        text.contains("not ready: NotListening: nothing listens on port 80"),
        "{text}"
    );
    assert!(text.contains("parked for 30s at most"), "{text}");
    world.unanswered(Unanswered::TimedOut);
    let wake = world.apps.wakes.of(VIP).next().unwrap().json();
    assert_eq!(
        (&wake["outcome"], &wake["endedIn"]),
        (&json!("timed_out"), &json!("wire"))
    );
    assert_eq!(wake["reason"], format!("NotListening: {message}"));
    world.ready_all();
    assert_eq!(world.status().failure, None);
    assert!(!explain(&world).contains("NotListening"));
}

#[test]
fn requests_of_a_failed_app_that_sleeps_are_parked() {
    let mut world = small();
    world.demand();
    world.execute_all();
    for _ in 0..3 {
        world.fail_one("Error");
        world.execute_all();
        while world.pods.is_empty() {
            world.tick(1.0);
            world.execute_all();
        }
    }
    let refuses = |world: &World| {
        world
            .route
            .as_ref()
            .is_some_and(|route| route.problem.is_some())
    };
    assert!(refuses(&world));
    // An app whose pods do not become ready is put to sleep after Knative's limit of an activation.
    for _ in 0..1_000 {
        if !world.is_asleep() {
            world.tick(0.0);
            world.execute_all();
        }
    }
    assert!(world.is_asleep());
    assert!(!refuses(&world));
}

/// A small app with a ready pod, in serve mode as soon as its load is known, and the pod's socket.
fn ready() -> (World, String) {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    let route = world.route.clone().unwrap();
    let pod = route.backends[0].to_string();
    (world, pod)
}

fn silent() -> Fault {
    let message = "did not respond within 3s".to_owned();
    let kind = FaultKind::NoResponse;
    Fault { kind, message }
}

#[test]
fn a_ready_pod_that_does_not_answer_is_a_reason_until_its_next_answer() {
    let (mut world, pod) = ready();
    let name = world.pods.keys().next().unwrap().name.clone();
    assert_eq!(world.status().failure, None);
    world.answer(&pod, Some(silent()));
    let expected = Failure::new(
        "NoResponse",
        format!("pod {name} did not respond within 3s"),
    );
    assert_eq!(world.status().failure, Some(expected.clone()));
    assert_eq!(world.events, [(expected.reason, expected.message)]);
    let route = world.route.clone().unwrap();
    assert_eq!(
        route.problem, None,
        "clients of a ready pod are not refused"
    );
    let explain = |world: &World| {
        crate::explain::explain(&world.apps.records[&VIP], None, world.now).to_string()
    };
    let text = explain(&world);
    assert!(text.contains("and fails: NoResponse"), "{text}");
    assert!(text.contains("did not respond within 3s"), "{text}");
    world.unanswered(Unanswered::TimedOut);
    let wake = world.apps.wakes.of(VIP).next().unwrap().json();
    let reason = format!("NoResponse: pod {name} did not respond within 3s");
    assert_eq!(wake["reason"], reason);
    world.answer("[2001:db8::ffff]:80", None);
    assert!(world.status().failure.is_some(), "another pod answered");
    world.answer(&pod, None);
    assert_eq!(world.status().failure, None);
    assert!(!explain(&world).contains("NoResponse"));
}

#[test]
fn a_pod_that_sends_no_http_is_a_reason_until_it_is_gone() {
    let (mut world, pod) = ready();
    let message = "failed a request: no HTTP".to_owned();
    let kind = FaultKind::BadResponse;
    world.answer(&pod, Some(Fault { kind, message }));
    let failure = world.status().failure.unwrap();
    assert_eq!(failure.reason, "BadResponse");
    world.fail_one("Error");
    world.execute_all();
    let failure = world.status().failure.unwrap();
    assert_eq!(failure.reason, "Error");
}

#[test]
fn in_serve_mode_an_old_failure_counts_for_five_minutes() {
    let (mut world, pod) = ready();
    world.answer(&pod, Some(silent()));
    world.tick(1.0);
    world.execute_all();
    assert_eq!(world.status().mode, Mode::Serve);
    for _ in 0..298 {
        world.connections(1.0);
        world.tick(0.0);
        world.execute_all();
    }
    assert!(world.status().failure.is_some());
    for _ in 0..2 {
        world.connections(1.0);
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(world.status().failure, None);
}

//! Apps whose pods fail or do not become ready: the reason reaches status, events, `explain`, the timeline and clients.

use dormouse_activator::Unanswered;
use serde_json::json;

use super::small;
use super::world::{VIP, World};

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

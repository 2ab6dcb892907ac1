//! A rollout that was complete, or never is, and whose pods fail: the conditions, and which pods stay.

use dormouse_cluster::app::{PodFailures, RolloutStatus};

use super::takeover::with_one_pod;
use super::*;
use crate::progress::ProgressState;

fn state(world: &World) -> ProgressState {
    world.status().progress.state
}

/// The one pod ends, and the next one is ready after its wait.
fn crash(world: &mut World) {
    world.fail_one("Error");
    world.execute_all();
    while world.pods.is_empty() {
        world.tick(1.0);
        world.execute_all();
    }
    world.ready_all();
    world.execute_all();
}

/// Its pods were ready for an instant each.
fn crashing() -> World {
    let mut world = with_one_pod();
    assert_eq!(state(&world), ProgressState::Complete);
    crash(&mut world);
    assert_eq!(state(&world), ProgressState::Complete);
    crash(&mut world);
    world
}

fn progressing(world: &World) -> (String, String, String) {
    let app = world.app.as_ref().unwrap();
    let condition = app.status.as_ref().unwrap().condition("Progressing");
    let condition = condition.unwrap().clone();
    (condition.status, condition.reason, condition.message)
}

#[test]
fn a_revision_whose_pods_are_ready_for_an_instant_each_is_not_rolled_out_until_one_stays() {
    let mut world = crashing();
    let failing = (
        "False".to_owned(),
        "CrashLoopBackOff".to_owned(),
        "revision 1 was ready, and fails: 2 pods failed in a row, the last: Error: ".to_owned(),
    );
    assert_eq!(world.status().ready, 1);
    assert_eq!(progressing(&world), failing);
    world.restart();
    world.execute_all();
    assert_eq!(progressing(&world), failing);
    for _ in 0..61 {
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(state(&world), ProgressState::Complete);
    assert_eq!(world.status().pod_failures, None);
    assert_eq!(progressing(&world).1, "NewRevisionAvailable");
}

#[test]
fn a_revision_that_failed_is_not_rolled_out_while_its_app_sleeps_until_a_wake_without_a_failure() {
    let mut world = small();
    let wake = |world: &mut World, crashes: u32| {
        world.demand();
        world.execute_all();
        world.ready_all();
        for _ in 0..crashes {
            crash(world);
        }
        while !world.is_asleep() {
            world.tick(0.0);
            world.execute_all();
        }
        progressing(world).1
    };
    assert_eq!(wake(&mut world, 2), "CrashLoopBackOff");
    world.restart();
    assert_eq!(wake(&mut world, 0), "NewRevisionAvailable");
}

#[test]
fn a_new_control_knows_the_failures_of_the_one_before() {
    let mut world = with_one_pod();
    world.fail_one("Error");
    world.execute_all();
    let failures = PodFailures {
        count: 1,
        reason: "Error".to_owned(),
        message: String::new(),
    };
    assert_eq!(world.status().pod_failures, Some(failures));
    let known = world.status().failure;
    assert!(known.is_some());
    world.restart();
    world.execute_all();
    assert_eq!(world.status().failure, known);
    world.fail_one("Error");
    world.execute_all();
    assert_eq!(world.status().failure.unwrap().reason, "CrashLoopBackOff");
    world.restart();
    world.execute_all();
    let text = world.status().failure.unwrap().to_string();
    assert!(text.contains("2 pods failed in a row"), "{text}");
}

#[test]
fn a_complete_rollout_has_its_deadline_again_while_no_pod_is_ready() {
    let mut world = with_one_pod();
    world.edit(|spec| spec.progress_deadline_seconds = 20);
    world.fail_one("Error");
    for second in 0..22 {
        world.execute_all();
        assert!(second > 19 || state(&world) == ProgressState::Complete);
        world.tick(0.0);
    }
    world.execute_all();
    let overdue = matches!(state(&world), ProgressState::Overdue { .. });
    assert!(overdue, "{:?}", state(&world));
    world.ready_all();
    world.execute_all();
    assert_eq!(state(&world), ProgressState::Complete);
}

#[test]
fn a_revision_whose_traffic_was_taken_back_is_not_rolled_out() {
    let mut world = with_one_pod();
    let steps = serde_json::from_value(json!({"duration": "60s"})).unwrap();
    world.split_for(1);
    world.edit(|spec| spec.rollout = Some(steps));
    world.rollout(RolloutStatus {
        revision: 1,
        from: 0,
        percent: 0,
        since: None,
        failure: Some("a step waited for too long".to_owned()),
    });
    world.execute_all();
    let message = "the traffic of revision 1 was taken back: a step waited for too long";
    let (status, reason, text) = progressing(&world);
    assert_eq!(
        (status.as_str(), reason.as_str(), text.as_str()),
        ("False", "RolloutFailed", message)
    );
    world.edit(|spec| spec.rollout = None);
    world.execute_all();
    assert_eq!(state(&world), ProgressState::Complete);
}

#[test]
fn a_rollout_with_fewer_ready_pods_than_are_wanted_is_not_complete_when_earlier_ones_are_lost() {
    let mut world =
        scaled(&json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "min": 3}));
    world.execute_until_ready();
    let earlier: Vec<Key> = world.pods.keys().cloned().collect();
    world.edit(|spec| spec.progress_deadline_seconds = 20);
    world.release(2);
    world.execute_all();
    world.ready_all();
    for pod in earlier
        .iter()
        .filter(|pod| world.pods.contains_key(pod))
        .cloned()
        .collect::<Vec<_>>()
    {
        world.fail(&pod, "NodeLost");
    }
    world.execute_all();
    assert_eq!(state(&world), ProgressState::RollingOut);
    for _ in 0..25 {
        world.tick(0.0);
        world.execute_all();
    }
    let overdue = matches!(state(&world), ProgressState::Overdue { .. });
    assert!(overdue, "{:?}", state(&world));
    world.ready_all();
    world.execute_all();
    assert_eq!(state(&world), ProgressState::Complete);
    world.fail_one("Error");
    world.execute_all();
    assert_eq!(state(&world), ProgressState::Complete, "it was once");
}

#[test]
fn more_pods_that_are_wanted_are_of_the_new_template_while_earlier_ones_leave() {
    let mut world = with_one_pod();
    world.delay_settling = true;
    world.release(2);
    world.execute_until_ready();
    assert_eq!(
        (state(&world), world.pods.len()),
        (ProgressState::Complete, 2)
    );
    world.floor(3);
    for _ in 0..2 {
        world.tick(0.0);
        world.execute_all();
    }
    let record = &world.apps.records[&world::VIP];
    assert!(record.is_rolled_out(), "{:?}", record.members);
    assert_eq!(record.live(), 3);
    world.ready_all();
    assert_eq!(state(&world), ProgressState::Complete);
}

#[test]
fn the_time_for_which_a_rollout_is_paused_does_not_count_towards_its_deadline() {
    let mut world = with_one_pod();
    world.edit(|spec| spec.paused = true);
    world.release(2);
    for _ in 0..700 {
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(state(&world), ProgressState::Paused);
    world.edit(|spec| spec.paused = false);
    world.tick(0.0);
    world.execute_all();
    assert_eq!(state(&world), ProgressState::RollingOut);
}

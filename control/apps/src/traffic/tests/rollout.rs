//! Gradual rollouts: steps, pauses, failures and returns.

use super::*;

/// An app with three ready pods that moves its traffic in four steps of 10 s.
pub(super) fn gradual() -> World {
    let mut world = World::new(&json!({"rollout": {"stepPercent": 25, "duration": "40s"}}));
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(
        (world.split(), world.reason()),
        (vec![], "InForce".to_owned())
    );
    assert_eq!(world.status().split_revision, Some(3));
    world
}

/// Its fourth template, whose pods are ready.
pub(super) fn begun() -> World {
    let mut world = gradual();
    world.release(4);
    world.settle();
    assert_eq!(
        world.split(),
        [],
        "the revision before has no ready pods of its own yet"
    );
    assert!(world.family.app.holds_rollout());
    assert_eq!(world.floor(3), 3);
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    assert!(
        !world.family.app.holds_rollout(),
        "pods of the new one start"
    );
    world.report(3, 4, "RollingOut");
    world.settle();
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    world.report(3, 4, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    world
}

pub(super) fn wait(world: &mut World, seconds: i64) {
    world.now += SignedDuration::from_secs(seconds);
    world.settle();
}

#[test]
fn the_traffic_moves_in_steps_once_pods_are_ready_and_the_child_ends_with_the_last() {
    let mut world = begun();
    let due = plan(&world.family, world.now).due.unwrap();
    assert_eq!(due, world.now + SignedDuration::from_secs(10));
    wait(&mut world, 9);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    wait(&mut world, 1);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);
    let (reason, message) = world.condition().unwrap();
    assert_eq!(reason, "RollingOut");
    assert_eq!(
        message,
        "web-4 replaces web-3 in steps: 50% web-4 (latest), 50% web-3"
    );
    wait(&mut world, 10);
    wait(&mut world, 10);
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
    assert_eq!(
        (world.status().rollout.clone(), world.reason()),
        (None, "InForce".to_owned())
    );
    wait(&mut world, 100);
    assert_eq!(world.split(), []);
}

#[test]
fn only_the_share_of_the_latest_revision_moves() {
    let mut world = begun();
    world.edit(&traffic(&[pinned(1, 60), latest(40)]));
    world.report(3, 4, "NewRevisionAvailable");
    world.settle();
    world.children_ready();
    world.settle();
    assert_eq!(
        world.split(),
        [(1, 60, false), (4, 10, true), (3, 30, false)]
    );
}

#[test]
fn a_paused_rollout_takes_no_step_and_goes_on_with_a_whole_one() {
    let mut world = begun();
    world.edit(&json!({"paused": true}));
    world.report(3, 4, "NewRevisionAvailable");
    wait(&mut world, 100);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    assert_eq!(world.reason(), "Paused");
    world.edit(&json!({"paused": false}));
    world.report(3, 4, "NewRevisionAvailable");
    wait(&mut world, 0);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    wait(&mut world, 10);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);
}

#[test]
fn a_revision_that_fails_gives_its_share_back_at_once_and_gets_none_until_the_template_changes() {
    for overdue in [true, false] {
        let mut world = begun();
        if overdue {
            world.report(3, 4, "ProgressDeadlineExceeded");
        } else {
            world.status().reason = Some("CrashLoopBackOff".to_owned());
        }
        world.settle();
        assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
        assert_eq!(world.reason(), "RolloutFailed");
        assert_eq!(world.events.last(), Some(&"RolloutFailed"));
        world.report(3, 4, "NewRevisionAvailable");
        wait(&mut world, 100);
        assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
        world.release(5);
        world.settle();
        assert_eq!(world.split(), [(5, 0, true), (3, 100, false)]);
        world.report(3, 5, "NewRevisionAvailable");
        world.settle();
        assert_eq!(world.split(), [(5, 25, true), (3, 75, false)]);
    }
}

#[test]
fn an_undo_sends_all_traffic_back_at_once_and_the_child_ends_when_the_apps_pods_run_it_again() {
    let mut world = begun();
    world.release(3);
    world.settle();
    assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    world.report(3, 4, "RollingOut");
    wait(&mut world, 100);
    assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
}

#[test]
fn an_undo_of_a_paused_rollout_sends_the_traffic_back_at_once_and_pods_wait_for_the_resume() {
    let mut world = begun();
    world.edit(&json!({"paused": true}));
    world.report(3, 4, "NewRevisionAvailable");
    world.settle();
    world.release(3);
    world.settle();
    assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    assert_eq!(world.reason(), "Paused");
    world.report(3, 4, "Paused");
    wait(&mut world, 100);
    assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    world.edit(&json!({"paused": false}));
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
}

#[test]
fn a_return_to_an_earlier_revision_after_the_rollout_is_not_gradual() {
    let mut world = gradual();
    world.release(2);
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
    assert!(!world.family.app.holds_rollout());
}

#[test]
fn a_sleeping_app_begins_with_the_first_step_and_waits_for_a_ready_pod_with_the_second() {
    let mut world = gradual();
    world.report(0, 3, "NewRevisionAvailable");
    world.release(4);
    world.settle();
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    wait(&mut world, 100);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    world.report(1, 4, "NewRevisionAvailable");
    wait(&mut world, 0);
    wait(&mut world, 10);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);
}

#[test]
fn an_app_without_a_ready_revision_has_nothing_to_move() {
    let mut world = World::new(&json!({"rollout": {"duration": "40s"}}));
    world.status().ready_revision = None;
    world.settle();
    assert_eq!(world.split(), []);
    assert!(!world.family.app.holds_rollout());
}

#[test]
fn without_rollout_in_the_manifest_the_latest_revision_gets_its_whole_share_at_once() {
    let mut world = begun();
    world.edit(&json!({"rollout": null}));
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
    assert_eq!(world.status().rollout, None);
}

#[test]
fn traffic_is_taken_back_also_while_another_target_cannot_be_prepared() {
    for undone in [false, true] {
        let mut world = begun();
        let missing = json!({"revisionName": "web-9", "tag": "next"});
        world.edit(&traffic(&[latest(100), missing]));
        world.report(3, 4, "NewRevisionAvailable");
        world.settle();
        assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
        assert_eq!(world.reason(), "RevisionMissing");
        if undone {
            world.release(3);
            world.settle();
            assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
            assert!(
                !world.family.app.awaits_split(),
                "pods of the restored template start"
            );
            continue;
        }
        world.report(3, 4, "ProgressDeadlineExceeded");
        world.settle();
        assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
        let (reason, message) = world.condition().unwrap();
        assert_eq!(reason, "RolloutFailed");
        assert!(message.contains("there is no revision web-9"), "{message}");
        assert_eq!(world.events.last(), Some(&"RolloutFailed"));
    }
}

#[test]
fn traffic_returns_to_pods_that_are_enough_also_while_another_target_cannot_be_prepared() {
    let mut world = first_step(2);
    world.report(6, 4, "NewRevisionAvailable");
    wait(&mut world, 10);
    wait(&mut world, 10);
    assert_eq!(world.split(), [(4, 75, true), (3, 25, false)]);
    world.children_ready();
    let child = world.child_status(3);
    (child.ready, child.wanted) = (2, 2);
    let missing = json!({"revisionName": "web-9", "tag": "next"});
    world.edit(&traffic(&[latest(100), missing]));
    world.release(3);
    world.settle();
    assert_eq!(world.split(), [(4, 75, true), (3, 25, false)]);
    assert_eq!(world.floor(3), 8);
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    assert_eq!(world.reason(), "RevisionMissing");
}

/// A rollout of a fourth template of an app with eight pods, of which the first step is in force. So many of its pods are ready then.
pub(super) fn first_step(ready: u32) -> World {
    let rollout = json!({"stepPercent": 25, "duration": "40s"});
    let mut world = World::new(&json!({"rollout": rollout, "progressDeadlineSeconds": 100}));
    world.report(8, 3, "NewRevisionAvailable");
    world.settle();
    world.release(4);
    world.settle();
    world.children_ready();
    world.settle();
    world.report(2, 4, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    world.report(ready, 4, "NewRevisionAvailable");
    wait(&mut world, 10);
    assert_eq!(world.status().pods_min, 4, "for the second step");
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    world
}

#[test]
fn a_step_that_waits_for_pods_until_the_deadline_is_taken_with_half_of_them_and_fails_with_fewer() {
    let mut world = first_step(2);
    wait(&mut world, 99);
    assert_eq!(world.reason(), "RevisionNotReady");
    wait(&mut world, 1);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);

    let mut world = first_step(1);
    wait(&mut world, 99);
    assert_eq!(world.reason(), "RevisionNotReady");
    let due = plan(&world.family, world.now).due.unwrap();
    assert_eq!(due, world.now + SignedDuration::from_secs(1));
    wait(&mut world, 1);
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    let (reason, message) = world.condition().unwrap();
    assert_eq!(reason, "RolloutFailed");
    let failure = "ProgressDeadlineExceeded: 1 of 4 pods are ready after 100 s";
    assert!(message.ends_with(failure), "{message}");
    assert_eq!(world.status().pods_min, 0);
}

#[test]
fn the_last_step_fails_as_any_other_but_not_without_a_rollout_in_the_manifest() {
    for is_gradual in [true, false] {
        let mut world = first_step(2);
        world.report(6, 4, "NewRevisionAvailable");
        wait(&mut world, 10);
        wait(&mut world, 10);
        assert_eq!(world.split(), [(4, 75, true), (3, 25, false)]);
        if !is_gradual {
            world.edit(&json!({"rollout": null}));
        }
        world.report(3, 4, "NewRevisionAvailable");
        wait(&mut world, 10);
        assert_eq!(world.status().pods_min, 8);
        wait(&mut world, 99);
        assert_eq!(world.reason(), "RevisionNotReady");
        wait(&mut world, 1);
        let (split, reason) = if is_gradual {
            ([(4, 0, true), (3, 100, false)], "RolloutFailed")
        } else {
            ([(4, 75, true), (3, 25, false)], "RevisionNotReady")
        };
        assert_eq!(
            (world.split(), world.reason().as_str()),
            (split.into(), reason)
        );
    }
}

#[test]
fn a_rollout_in_one_step_fails_without_half_of_its_pods() {
    let rollout = json!({"stepPercent": 100, "duration": "40s"});
    let mut world = World::new(&json!({"rollout": rollout, "progressDeadlineSeconds": 100}));
    world.report(8, 3, "NewRevisionAvailable");
    world.settle();
    world.release(4);
    world.settle();
    world.children_ready();
    world.settle();
    world.report(3, 4, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    wait(&mut world, 100);
    assert_eq!(world.reason(), "RolloutFailed");
}

#[test]
fn a_return_whose_pods_all_fail_keeps_one_of_them_after_the_deadline() {
    let mut world = begun();
    world.edit(&json!({"progressDeadlineSeconds": 100}));
    world.report(3, 4, "NewRevisionAvailable");
    world.settle();
    world.release(3);
    world.settle();
    world.children_ready();
    world.report(0, 4, "RollingOut");
    for (seconds, floor) in [(0, 3), (99, 3), (1, 1), (500, 1)] {
        wait(&mut world, seconds);
        assert_eq!(world.status().pods_min, floor);
        assert_eq!(world.split(), [(3, 0, true), (3, 100, false)]);
    }
}

//! Shares that wait for pods, up to the deadline and after it.

use super::load::Loaded;
use super::rollout::first_step;
use super::*;
use crate::pod::UNSCHEDULABLE;

/// All traffic of 30 pods is to go to revision 2, which has waited until the deadline of 100 s without a ready pod.
fn late() -> World {
    let spec = json!({"traffic": [pinned(2, 100)], "progressDeadlineSeconds": 100});
    let mut world = World::new(&spec);
    world.report(30, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.floor(2), 30);
    pass(&mut world, 100);
    assert_eq!(world.floor(2), 1);
    world
}

fn pass(world: &mut World, seconds: i64) {
    world.now += SignedDuration::from_secs(seconds);
    world.settle();
}

/// A child that wants 30 pods has so many ready ones, and this reason for that.
fn has(world: &mut World, child: u32, ready: u32, reason: &str) {
    let status = world.child_status(child);
    (status.state, status.ready, status.wanted) = (State::Awake, ready, 30);
    status.reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
    world.settle();
}

#[test]
fn a_child_without_all_its_pods_for_a_known_reason_gets_its_share_with_those_that_are_ready() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    let status = world.child_status(2);
    (status.ready, status.wanted) = (1, 3);
    world.settle();
    assert_eq!(world.split(), []);
    world.child_status(2).reason = Some("ReadinessProbeFailed".to_owned());
    world.settle();
    assert_eq!(world.split(), [], "the others are starting");
    world.child_status(2).reason = Some("PodsLimited".to_owned());
    world.settle();
    assert_eq!(world.split(), [], "those that are admitted are starting");
    world.now = plan(&world.family, world.now).due.unwrap();
    world.child_status(2).ready = 0;
    world.settle();
    assert_eq!(world.split(), [], "none is ready");
    world.child_status(2).ready = 1;
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
}

#[test]
fn some_pods_that_are_not_ready_delay_a_share_until_the_deadline_and_no_longer() {
    let traffic = traffic(&[pinned(2, 100)]);
    let mut annotated = World::new(&traffic);
    let deadline = ("serving.knative.dev/progress-deadline", "100s");
    let deadline = [deadline].map(|(name, value)| (name.to_owned(), value.to_owned()));
    annotated.family.app.metadata.annotations = Some(deadline.into());
    let mut manifest = World::new(&traffic);
    manifest.family.app.spec.progress_deadline_seconds = 100;
    for mut world in [annotated, manifest] {
        world.report(5, 3, "NewRevisionAvailable");
        world.settle();
        let status = world.child_status(2);
        (status.state, status.ready, status.wanted) = (State::Awake, 4, 5);
        world.settle();
        assert_eq!(world.split(), []);
        for (second, split) in [(30, vec![]), (100, vec![(2, 100, false)])] {
            world.now = plan(&world.family, world.now).due.unwrap();
            assert_eq!(world.now.as_second(), second);
            world.settle();
            assert_eq!(world.split(), split);
        }
    }
}

#[test]
fn a_share_whose_pods_all_fail_keeps_one_pod_after_the_deadline_and_starts_the_others_when_that_is_ready()
 {
    let mut app = Loaded::new(30, 5, &json!({"progressDeadlineSeconds": 100}));
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(95);
    assert_eq!(app.world.floor(2), 30);
    app.run(10);
    assert_eq!(app.world.floor(2), 1);
    app.broken.clear();
    app.run(4);
    assert_eq!(app.world.floor(2), 2);
    app.run(40);
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.floor(2), 30);
}

#[test]
fn a_wait_for_the_shares_of_one_manifest_is_none_for_those_of_the_next() {
    let mut world = late();
    world.edit(&traffic(&[pinned(1, 100)]));
    world.settle();
    assert_eq!(world.floor(1), 30);
    for (ready, reason) in [(1, UNSCHEDULABLE), (15, ""), (26, "")] {
        has(&mut world, 1, ready, reason);
        assert_eq!(world.split(), [], "{ready} of 30 pods");
    }
    has(&mut world, 1, 27, "");
    assert_eq!(world.split(), [(1, 100, false)]);
}

#[test]
fn a_share_that_cannot_be_in_force_does_not_wait_for_pods() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(30, 3, "NewRevisionAvailable");
    world.family.taken.insert(2);
    world.settle();
    assert_eq!(world.reason(), "NameTaken");
    pass(&mut world, 1_000);
    world.family.taken.clear();
    world.settle();
    assert_eq!(world.floor(2), 30);
    has(&mut world, 2, 15, UNSCHEDULABLE);
    assert_eq!(world.split(), []);
}

#[test]
fn time_without_a_control_does_not_count() {
    let mut world = first_step(1);
    world.now += SignedDuration::from_secs(1_000);
    world.family.since = world.now;
    world.settle();
    pass(&mut world, 99);
    assert_eq!(world.reason(), "RevisionNotReady");
    pass(&mut world, 1);
    assert_eq!(world.reason(), "RolloutFailed");
}

#[test]
fn a_wait_begins_again_when_the_clock_is_set_back() {
    let mut world = late();
    for (seconds, floor) in [(-3_600, 30), (99, 30), (1, 1)] {
        pass(&mut world, seconds);
        assert_eq!(world.floor(2), floor);
    }
}

#[test]
fn after_the_deadline_twice_the_ready_pods_of_a_share_are_started_and_a_smaller_share_needs_no_more()
 {
    let mut world = late();
    for (ready, floor) in [(0, 1), (1, 2), (0, 1), (1, 2), (4, 8), (14, 28)] {
        has(&mut world, 2, ready, "");
        assert_eq!((world.split(), world.floor(2)), (vec![], floor));
    }
    let (_, message) = world.condition().unwrap();
    let text = "14 of 30 pods are ready; after 100 s enough for a share of 46%";
    assert!(message.ends_with(text), "{message}");
    world.edit(&traffic(&[pinned(2, 46), latest(54)]));
    world.settle();
    assert_eq!(world.split(), [(2, 46, false), (3, 54, true)]);
}

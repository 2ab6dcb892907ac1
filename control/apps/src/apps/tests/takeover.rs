//! A start of control: which pods it takes over, and which go on leaving.

use dormouse_cluster::State;

use super::*;
use crate::progress::ProgressState;

/// The app has one ready pod, and wants no other without load.
pub(super) fn with_one_pod() -> World {
    let mut world =
        scaled(&json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "min": 1}));
    world.execute_until_ready();
    world
}

/// The app gets a new template, whose pods become ready, and control starts again.
fn release_and_restart(world: &mut World, number: u16) {
    world.release(number);
    world.execute_until_ready();
    world.restart();
    world.execute_all();
}

#[test]
fn pods_that_leave_are_no_part_of_the_scale_that_a_new_control_resumes() {
    let mut world = with_one_pod();
    // A node that is cut off delays the removal of each.
    world.delay_settling = true;
    for release in 2..4 {
        release_and_restart(&mut world, release);
        world.tick(0.0);
        world.execute_all();
        let (ready, wanted) = (world.status().ready, world.status().wanted);
        assert_eq!((ready, wanted), (1, 1), "release {release}");
    }
    world.delay_settling = false;
    world.restart();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn pods_of_earlier_templates_that_nodes_keep_from_leaving_do_not_add_up() {
    let mut world = with_one_pod();
    world.delay_settling = true;
    for release in 2..12 {
        release_and_restart(&mut world, release);
        // Two that leave, one that serves and its successor.
        assert!(world.pods.len() <= 4, "{:?}", world.pods.keys());
        assert_eq!(world.status().ready, 1, "release {release}");
    }
    let progress = world.status().progress;
    let text = "revision 12 waits until 2 pods of earlier revisions are gone: 0 of 1 pods are ready; ready pods of earlier revisions: 1";
    assert_eq!(progress.to_string(), text);
    for _ in 0..700 {
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(world.status().progress, progress, "no deadline counts");
    world.delay_settling = false;
    world.restart();
    world.execute_until_ready();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.status().progress.state, ProgressState::Complete);
}

#[test]
fn pods_of_earlier_templates_that_leave_are_awaited_only_while_they_hold_a_pod_back() {
    let mut world = with_one_pod();
    let now = world.now;
    let record = world.apps.records.get_mut(&world::VIP).unwrap();
    for name in ["first", "second"] {
        let leaves = Member {
            draining: true,
            ..Member::new(now, "an earlier one".to_owned())
        };
        record.members.insert(Key::new("default", name), leaves);
    }
    assert!(!record.awaits_leaving(), "all pods of the template exist");
    record.template = "the next one".to_owned();
    assert!(record.awaits_leaving(), "a pod of it is missing");
}

#[test]
fn a_new_control_resumes_the_scale_and_not_the_peak_before() {
    let mut world = with_one_pod();
    for _ in 0..6 {
        world.connections(35.0);
        world.tick(0.0);
        world.ready_all();
    }
    assert!(world.status().ready > 3, "{:?}", world.status());
    world.delay_settling = true;
    while world.status().wanted > 1 {
        world.tick(0.0);
        world.execute_all();
    }
    let leaving = world.pods.len();
    assert!(leaving > 3);
    world.restart();
    world.tick(0.0);
    world.execute_all();
    assert_eq!((world.status().ready, world.status().wanted), (1, 1));
    assert_eq!(world.pods.len(), leaving);
}

/// The app is deleted and created again with the same VIP, while a node delays the removal of its pod. The new one has no load.
fn recreated() -> (World, Key) {
    let mut world = small();
    world.demand();
    world.execute_until_ready();
    let pod = world.pods.keys().next().unwrap().clone();
    world.delay_settling = true;
    world.replace_app();
    world.execute_all();
    (world, pod)
}

#[test]
fn a_pod_that_an_app_has_left_to_its_vip_is_none_of_the_next_app_also_for_a_new_control() {
    for restarts in 0..3 {
        let (mut world, pod) = recreated();
        for _ in 0..restarts {
            world.restart();
            world.execute_all();
        }
        let record = &world.apps.records[&world::VIP];
        assert_eq!((record.live(), record.want), (0, 0), "{restarts} restarts");
        assert_eq!(plan::state(record).0, State::Asleep);
        let explained = crate::explain::explain(record, None, world.now).to_string();
        assert!(!explained.contains(&pod.name), "{explained}");
        assert!(world.pods.contains_key(&pod));
        world.delay_settling = false;
        world.restart();
        world.execute_all();
        assert!(world.pods.is_empty());
        assert!(world.is_asleep());
    }
}

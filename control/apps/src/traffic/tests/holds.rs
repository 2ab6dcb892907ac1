//! What holds a gradual rollout, and what does not.

use super::rollout::{begun, gradual, wait};
use super::*;

#[test]
fn a_paused_rollout_starts_no_pods_for_its_first_step() {
    let mut world = gradual();
    world.edit(&json!({"paused": true}));
    world.release(4);
    world.settle();
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    assert_eq!(world.status().pods_min, 0);
    world.edit(&json!({"paused": false}));
    world.settle();
    assert_eq!(world.status().pods_min, 1);
}

#[test]
fn a_template_that_gets_no_traffic_has_no_rollout() {
    let mut world = gradual();
    world.edit(&traffic(&[pinned(2, 100)]));
    world.children_ready();
    world.settle();
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    world.release(4);
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    assert_eq!(world.status().rollout, None);
    assert!(!world.family.app.awaits_split());
}

#[test]
fn pods_of_an_earlier_template_get_no_step_also_without_load() {
    let mut world = gradual();
    world.release(4);
    world.settle();
    world.children_ready();
    world.settle();
    let child = world.child_status(3);
    (child.state, child.ready, child.wanted) = (State::Asleep, 0, 0);
    world.report(1, 3, "RollingOut");
    wait(&mut world, 100);
    assert_eq!(world.split(), [(4, 0, true), (3, 100, false)]);
    world.report(1, 4, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
}

#[test]
fn reports_about_an_earlier_manifest_neither_fail_a_rollout_nor_let_it_go_on() {
    for overdue in [true, false] {
        let mut world = begun();
        if overdue {
            world.report(3, 4, "ProgressDeadlineExceeded");
        } else {
            world.status().reason = Some("CrashLoopBackOff".to_owned());
        }
        world.edit(&json!({"timeout": "7s"}));
        world.settle();
        assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
        assert_eq!(world.reason(), "RollingOut");
    }
    let mut world = begun();
    world.edit(&json!({"paused": true}));
    world.settle();
    world.edit(&json!({"paused": false}));
    wait(&mut world, 0);
    wait(&mut world, 100);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    world.report(3, 4, "NewRevisionAvailable");
    wait(&mut world, 0);
    wait(&mut world, 10);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);
}

#[test]
fn requests_at_a_tag_do_not_delay_the_first_step_of_a_sleeping_app() {
    let mut world = gradual();
    let tagged = json!({"revisionName": "web-1", "tag": "old"});
    world.edit(&traffic(&[latest(100), tagged]));
    world.report(0, 3, "NewRevisionAvailable");
    world.settle();
    let child = world.child_status(1);
    (child.state, child.ready, child.wanted) = (State::Awake, 1, 1);
    world.release(4);
    world.settle();
    assert_eq!(
        world.split(),
        [(4, 25, true), (3, 75, false), (1, 0, false)]
    );
}

#[test]
fn a_template_replaces_a_revision_that_gets_no_pods_as_a_child_without_steps() {
    let mut world = gradual();
    world.edit(&json!({"progressDeadlineSeconds": 100}));
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    world.release(4);
    world.settle();
    wait(&mut world, 99);
    assert!(world.family.app.awaits_split());
    wait(&mut world, 1);
    assert_eq!(world.events.last(), Some(&"RevisionNotReady"));
    assert!(!world.family.app.awaits_split() && !world.family.app.holds_rollout());
    let children = world.children();
    assert_eq!(
        (world.split(), children, world.status().rollout.clone()),
        (vec![], vec![], None)
    );
    world.report(3, 4, "NewRevisionAvailable");
    world.release(5);
    world.settle();
    world.children_ready();
    world.settle();
    assert_eq!(
        world.split(),
        [(5, 0, true), (4, 100, false)],
        "the next one has steps"
    );
}

#[test]
fn a_clock_that_is_set_back_holds_a_rollout_for_one_step() {
    let mut world = begun();
    wait(&mut world, -3_600);
    assert_eq!(world.split(), [(4, 25, true), (3, 75, false)]);
    wait(&mut world, 10);
    assert_eq!(world.split(), [(4, 50, true), (3, 50, false)]);
}

//! The shares of a manifest, for an app under load.

use super::load::Loaded;
use super::needs::Target;
use super::*;

#[test]
fn under_load_a_child_gets_its_share_when_as_many_pods_are_ready_as_it_takes() {
    let mut world =
        World::new(&json!({"traffic": [pinned(2, 50), latest(50)], "scale": {"max": 9}}));
    world.report(5, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), []);
    assert_eq!(world.reason(), "RevisionNotReady");
    assert_eq!(world.floor(2), 3);
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!(world.floor(2), 3, "its load is not measured yet");
    let due = plan(&world.family, world.now).due.unwrap();
    assert_eq!(due, world.now + SignedDuration::from_secs(62));
    world.now = due;
    world.settle();
    assert_eq!(world.floor(2), 0, "it may sleep now");
    assert_eq!(world.status().traffic_move, None);
}

#[test]
fn all_traffic_returns_to_a_latest_revision_that_slept_or_had_a_small_share() {
    for share in [0, 10] {
        let split = if share == 0 {
            traffic(&[pinned(2, 100)])
        } else {
            traffic(&[pinned(2, 90), latest(10)])
        };
        let mut app = Loaded::new(30, 5, &json!({}));
        app.world.edit(&split);
        app.run(200);
        let own = app.own.ready(5);
        assert!(own <= 3, "{own} pods for {share}%");
        app.world.edit(&traffic(&[latest(100)]));
        app.run(2);
        assert_eq!(app.world.reason(), "RevisionNotReady");
        app.run(10);
        assert_eq!(app.world.split(), []);
        assert_eq!(app.own.ready(5), 30);
        app.run(100);
        assert_eq!(app.world.status().pods_min, 0);
    }
}

#[test]
fn a_share_that_at_most_doubles_is_in_force_at_once() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 50), latest(50)]));
    app.run(100);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.world.settle();
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.floor(2), 30);
}

#[test]
fn a_family_that_falls_asleep_keeps_no_pods_for_a_share_that_waits() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(300);
    assert_eq!(app.world.reason(), "RevisionNotReady");
    assert_eq!(app.world.floor(2), 30);
    app.pods = 0;
    app.run(200);
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.floor(2), 0);
}

#[test]
fn a_template_and_its_canary_applied_at_once_get_no_pods_of_the_revision_before() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(200);
    app.world.release(4);
    app.world.edit(&traffic(&[pinned(2, 90), latest(10)]));
    app.world.settle();
    assert!(
        !app.world.family.app.awaits_split(),
        "own pods get no traffic"
    );
    app.broken.insert(4);
    app.run(100);
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.reason(), "RevisionNotReady");
    app.broken.clear();
    app.run(10);
    assert_eq!(app.world.split(), [(2, 90, false), (4, 10, true)]);
}

#[test]
fn nine_of_ten_pods_are_enough() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(20, 3, "NewRevisionAvailable");
    world.settle();
    for (ready, split) in [(17, vec![]), (18, vec![(2, 100, false)])] {
        let status = world.child_status(2);
        (status.state, status.ready, status.wanted) = (State::Awake, ready, 20);
        world.settle();
        assert_eq!(world.split(), split);
    }
}

#[test]
fn no_pods_start_for_a_split_that_names_a_missing_revision_and_fewer_when_the_load_falls() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 50), pinned(9, 50)]));
    app.run(20);
    assert_eq!(app.world.reason(), "RevisionMissing");
    assert_eq!(app.world.floor(2), 0);
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(20);
    assert_eq!(app.world.floor(2), 30);
    app.pods = 4;
    app.run(200);
    assert!(app.world.floor(2) <= 8, "twice the load");
}

#[test]
fn pods_are_kept_for_no_longer_when_the_clock_is_set_back() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(20);
    assert_eq!(app.world.floor(2), 30);
    app.world.now -= SignedDuration::from_hours(1);
    app.world.settle();
    assert_eq!(app.world.floor(2), 0);
}

#[test]
fn a_share_of_most_of_the_traffic_waits_for_pods_also_when_little_is_left_to_grow() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 40), latest(60)]));
    app.run(200);
    assert_eq!((app.own.ready(5), app.child_pods(2)), (18, 12));
    app.world.edit(&traffic(&[latest(100)]));
    app.run(2);
    assert_eq!(app.world.split(), [(2, 40, false), (3, 60, true)]);
    assert_eq!(app.world.status().pods_min, 30);
    app.run(10);
    assert_eq!((app.world.split(), app.own.ready(5)), (vec![], 30));
}

#[test]
fn targets_that_each_have_the_minimum_of_pods_are_no_measure_of_one_that_gets_all_traffic() {
    let split = [pinned(1, 34), pinned(2, 33), latest(33)];
    let mut app = Loaded::new(14, 5, &json!({"scale": {"min": 5}}));
    app.world.edit(&traffic(&split));
    app.run(200);
    let children = (app.child_pods(1), app.child_pods(2));
    assert_eq!((app.own.ready(5), children), (5, (5, 5)));
    app.world.edit(&traffic(&[latest(100)]));
    app.run(2);
    assert_eq!(app.percent(Target::Own), 33);
    app.run(10);
    assert_eq!((app.world.split(), app.own.ready(5)), (vec![], 15));
    app.run(200);
    assert_eq!(app.own.ready(5), 14);
}

#[test]
fn pods_of_a_share_that_waits_follow_the_load_up_to_the_maximum() {
    let mut world = World::new(&json!({"traffic": [pinned(2, 100)], "scale": {"max": 12}}));
    for (pods, floor) in [(5, 5), (8, 8), (20, 12)] {
        world.report(pods, 3, "NewRevisionAvailable");
        world.settle();
        assert_eq!((world.split(), world.floor(2)), (vec![], floor));
    }
    world.report(5, 3, "NewRevisionAvailable");
    world.status().wanted = 9;
    world.settle();
    assert_eq!(world.floor(2), 9, "pods that start have a load, too");
}

#[test]
fn only_a_target_that_gets_a_greater_share_under_load_has_a_floor() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 50), latest(50)]));
    app.run(20);
    assert_eq!(app.world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!((app.world.floor(2), app.world.status().pods_min), (15, 0));
    let mut world = World::new(&traffic(&[pinned(2, 50), latest(50)]));
    world.settle();
    assert_eq!(world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!(
        (world.floor(2), world.status().traffic_move.clone()),
        (0, None)
    );
}

/// The mode of a child when its pods start for a share: a new one, and one that has slept with an address of its own.
fn mode_at_start(mode: Mode, sleeps: bool) -> Mode {
    let mut world = World::new(&json!({}));
    world.report(2, 3, "NewRevisionAvailable");
    world.status().mode = mode;
    if sleeps {
        world.edit(&traffic(&[
            latest(100),
            json!({"revisionName": "web-1", "tag": "old"}),
        ]));
        world.settle();
        world.children_ready();
        assert_eq!(world.child_status(1).mode, Mode::Proxy);
    }
    world.edit(&traffic(&[latest(50), pinned(1, 50)]));
    world.settle();
    assert!(world.floor(1) > 0);
    world.child_status(1).mode
}

#[test]
fn a_child_that_starts_for_a_share_starts_in_the_mode_of_the_traffic() {
    for mode in [Mode::Serve, Mode::Proxy] {
        for sleeps in [false, true] {
            assert_eq!(mode_at_start(mode, sleeps), mode, "{sleeps}");
        }
    }
}

#[test]
fn a_child_starts_in_proxy_mode_while_one_target_with_traffic_is_in_it() {
    let mut world = World::new(&traffic(&[latest(50), pinned(2, 50)]));
    world.report(2, 3, "NewRevisionAvailable");
    world.settle();
    world.children_ready();
    world.settle();
    world.child_status(2).mode = Mode::Serve;
    world.edit(&traffic(&[latest(40), pinned(2, 40), pinned(1, 20)]));
    world.settle();
    assert!(world.floor(1) > 0);
    assert_eq!(world.child_status(1).mode, Mode::Proxy);
}

#[test]
fn the_latest_revision_gets_a_share_with_pods_of_its_own_template_only() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(5, 3, "NewRevisionAvailable");
    world.settle();
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    world.release(4);
    world.edit(&traffic(&[latest(100)]));
    world.report(5, 3, "RollingOut");
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    let (_, message) = world.condition().unwrap();
    assert!(message.contains("5 of 5 pods of its template"), "{message}");
    world.report(5, 4, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), []);
}

#[test]
fn a_child_keeps_its_minimum_of_pods_as_long_as_it_has_traffic() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.edit(&json!({"scale": {"min": 2}}));
    world.report(2, 3, "NewRevisionAvailable");
    world.settle();
    world.children_ready();
    world.settle();
    world.edit(&traffic(&[latest(100)]));
    world.report(0, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    assert_eq!(world.family.children[&2].spec.scale.min, Some(2));
}

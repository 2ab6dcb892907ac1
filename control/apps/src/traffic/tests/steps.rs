//! Gradual rollouts of an app under load.

use dormouse_cluster::app::TRAFFIC_NOW;

use super::load::Loaded;
use super::*;

#[test]
fn a_gradual_rollout_under_load_starts_the_pods_of_each_share() {
    for start in [1, 5, 120] {
        let mut app = Loaded::gradual(30, start);
        app.world.release(4);
        app.run(3 * start + 5);
        assert!(app.percent(Target::Own) >= 10, "after {start} s");
        app.run(10 * start + 200);
        assert_eq!(app.world.split(), []);
        assert_eq!(app.own.ready(start), 30);
        assert_eq!(app.world.status().ready_revision, Some(4));
    }
}

#[test]
fn a_revision_that_never_gets_ready_gets_no_request_and_its_rollout_fails() {
    let mut app = Loaded::gradual(30, 3);
    app.broken.insert(4);
    app.world.release(4);
    for _ in 0..700 {
        app.run(1);
        let own = app.percent(Target::Own);
        let is_new = app.own.revision == 4 && app.own.earlier == 0;
        assert!(own == 0 || !is_new, "{own}%");
    }
    assert_eq!(app.world.split(), [(4, 0, true), (3, 100, false)]);
    assert_eq!(app.world.reason(), "RolloutFailed");
    assert_eq!(app.world.status().pods_min, 0, "it may sleep");
}

#[test]
fn after_an_undo_the_child_keeps_the_traffic_until_the_apps_own_pods_are_enough() {
    let mut app = Loaded::gradual(30, 3);
    app.broken.insert(4);
    app.world.release(4);
    app.run(1_500);
    assert_eq!(app.world.status().state, State::Asleep);
    app.world.release(3);
    app.run(30);
    assert_eq!((app.world.split(), app.own.ready(3)), (vec![], 30));
    app.run(200);
    assert_eq!(app.world.children(), Vec::<u32>::new());
}

/// A rollout of revision 4 whose steps are longer than the window, at 90%.
fn at_90_percent() -> Loaded {
    let spec = json!({"rollout": {"stepPercent": 10, "duration": "1000s"}});
    let mut app = Loaded::new(30, 5, &spec);
    app.world.release(4);
    app.run(20);
    while app.percent(Target::Own) < 90 {
        app.run(1);
    }
    app.run(90);
    assert_eq!(app.world.split(), [(4, 90, true), (3, 10, false)]);
    assert!(app.world.family.children[&3].status.clone().unwrap().ready <= 3);
    app
}

/// The owner wants the split of the manifest at once.
fn now(app: &mut Loaded) {
    let metadata = &mut app.world.family.app.metadata;
    let generation = metadata.generation.unwrap().to_string();
    metadata.annotations = Some([(TRAFFIC_NOW.to_owned(), generation)].into());
}

#[test]
fn traffic_returns_at_once_if_its_owner_wants_that_and_later_changes_wait_again() {
    let mut app = at_90_percent();
    app.world.release(3);
    now(&mut app);
    app.world.settle();
    assert_eq!(app.percent(Target::Child(3)), 100);
    let mut app = at_90_percent();
    now(&mut app);
    app.world.release(3);
    app.world.settle();
    assert_eq!(app.percent(Target::Child(3)), 10, "of the manifest before");
}

#[test]
fn an_undo_late_in_a_rollout_starts_the_pods_of_the_child_first_and_then_the_apps_own() {
    let mut app = at_90_percent();
    app.world.release(3);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 90);
    app.run(100);
    assert_eq!((app.world.split(), app.own.ready(5)), (vec![], 30));
}

#[test]
fn a_further_template_late_in_a_rollout_starts_when_the_child_has_its_pods() {
    let mut app = at_90_percent();
    app.world.release(5);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 90, "of revision 4");
    app.run(8);
    assert_eq!(app.world.split(), [(5, 0, true), (3, 100, false)]);
    app.run(1_500);
    assert_eq!(app.world.split(), []);
}

#[test]
fn a_new_template_takes_no_traffic_to_a_child_that_had_only_a_tag() {
    let tagged = json!({"latestRevision": true, "percent": 100, "tag": "next"});
    let spec = json!({"rollout": {"stepPercent": 10, "duration": "100s"}});
    let mut app = Loaded::new(30, 5, &spec);
    app.world.edit(&traffic(&[tagged]));
    app.run(5);
    assert_eq!(app.world.split(), [(3, 100, true), (3, 0, false)]);
    app.world.release(4);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 100);
    app.run(300);
    assert_eq!(app.world.split(), [(4, 100, true), (4, 0, false)]);
}

#[test]
fn a_rollout_of_an_app_with_a_minimum_starts_no_pods_that_no_load_needs() {
    for (pods, min) in [(1, 0), (1, 5), (5, 5), (8, 5)] {
        let rollout = json!({"stepPercent": 10, "duration": "1000s"});
        let spec = json!({"rollout": rollout, "scale": {"min": min}});
        let mut app = Loaded::new(pods, 5, &spec);
        app.run(100);
        app.world.release(4);
        let mut most = 0;
        for _ in 0..1_200 {
            app.run(1);
            most = most.max(app.own.ages.len());
        }
        assert_eq!(app.world.split(), []);
        let most = u32::try_from(most).unwrap();
        assert!(most <= pods.max(min) + 1, "{most} pods, {pods} are needed");
        assert!(
            pods > 1 || most == min.max(1),
            "{most} pods for a load of one"
        );
    }
}

//! Splits: their rows and children, and what the owner sees.

use super::*;

#[test]
fn an_app_whose_traffic_is_not_divided_has_neither_children_nor_a_condition() {
    let mut world = World::new(&json!({}));
    assert!(!world.step());
    assert_eq!(world.condition(), None);
}

#[test]
fn a_sleeping_app_divides_its_traffic_at_once_and_its_children_sleep() {
    let mut world = World::new(&traffic(&[pinned(2, 90), latest(10)]));
    world.settle();
    assert_eq!(world.split(), [(2, 90, false), (3, 10, true)]);
    let child = &world.family.children[&2];
    assert_eq!(child.spec.scale.min, None);
    assert_eq!(child.metadata.name.as_deref(), Some("web-2"));
    assert_eq!(child.parent().unwrap().0, Key::new("shop", "web"));
    let (reason, message) = world.condition().unwrap();
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("InForce", "90% web-2, 10% web-3 (latest)")
    );
    world.edit(&json!({"traffic": []}));
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
    assert_eq!(world.condition(), None);
    assert_eq!(world.status().split_revision, None);
    assert_eq!(world.events, ["TrafficSplit", "TrafficSplit"]);
}

#[test]
fn the_settings_of_children_follow_their_parent_and_their_template_does_not() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.settle();
    world.edit(&json!({"timeout": "7s", "scale": {"min": 2, "containerConcurrency": 3}}));
    world.release(4);
    world.settle();
    let child = &world.family.children[&2];
    assert_eq!(child.spec.timeout().as_secs(), 7);
    assert_eq!(
        (child.spec.scale.min, child.spec.scale.container_concurrency),
        (Some(2), 3)
    );
    assert_eq!(child.spec.template(), template(2));
    assert_eq!(child.metadata.generation, Some(2));
    assert!(child.spec.traffic.is_empty() && child.spec.vip.is_some());
}

#[test]
fn children_have_the_annotations_of_their_parent_that_are_settings() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    let name = |name: &str| format!("autoscaling.knative.dev/{name}");
    let annotate = |app: &mut App, pods: &str| {
        let annotations = [
            (name("min-scale"), pods.to_owned()),
            ("note".to_owned(), "x".to_owned()),
        ];
        app.metadata.annotations = Some(annotations.into());
    };
    annotate(&mut world.family.app, "2");
    world.settle();
    let min = |world: &World| {
        let child = &world.family.children[&2];
        assert!(
            !child
                .metadata
                .annotations
                .as_ref()
                .unwrap()
                .contains_key("note")
        );
        child.autoscaling(&world.family.cluster).settings.min_scale
    };
    assert_eq!(min(&world), 2);
    annotate(&mut world.family.app, "3");
    assert!(world.step());
    assert_eq!(min(&world), 3);
    assert_eq!(world.family.children[&2].metadata.generation, Some(1));
}

#[test]
fn a_target_without_traffic_sleeps_and_keeps_its_address() {
    let tagged = json!({"revisionName": "web-1", "tag": "old"});
    let mut world = World::new(&json!({"traffic": [latest(100), tagged], "scale": {"min": 2}}));
    world.report(5, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(3, 100, true), (1, 0, false)]);
    assert_eq!(world.family.children[&1].spec.scale.min, Some(0));
    assert_eq!(world.family.traffic()[1].tag.as_deref(), Some("old"));
}

#[test]
fn a_tag_of_the_latest_revision_is_a_child_which_a_new_template_replaces() {
    let tagged = json!({"latestRevision": true, "percent": 0, "tag": "next"});
    let mut world = World::new(&traffic(&[pinned(2, 100), tagged]));
    world.settle();
    assert_eq!(
        world.split(),
        [(2, 100, false), (3, 0, true), (3, 0, false)]
    );
    assert_eq!(world.family.traffic()[2].tag.as_deref(), Some("next"));
    world.release(4);
    world.settle();
    assert_eq!(
        world.split(),
        [(2, 100, false), (4, 0, true), (4, 0, false)]
    );
    assert_eq!(world.children(), [2, 4]);
}

#[test]
fn targets_of_one_revision_are_added_up() {
    let tagged = json!({"revisionName": "web-2", "percent": 10, "tag": "b"});
    let mut world = World::new(&traffic(&[pinned(2, 40), tagged, latest(30), latest(20)]));
    world.settle();
    assert_eq!(world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!(world.family.traffic()[0].tag.as_deref(), Some("b"));
}

#[test]
fn a_pinned_latest_revision_stays_pinned_when_the_template_changes() {
    let mut world = World::new(&traffic(&[pinned(3, 100)]));
    world.settle();
    assert_eq!(world.split(), [(3, 100, false)]);
    world.release(4);
    world.settle();
    assert_eq!(world.split(), [(3, 100, false)]);
}

#[test]
fn pods_of_a_new_template_wait_until_the_revision_before_has_its_share() {
    let mut world = World::new(&json!({}));
    world.report(2, 3, "NewRevisionAvailable");
    world.release(4);
    assert!(!world.family.app.awaits_split());
    world.edit(&traffic(&[pinned(3, 100)]));
    world.settle();
    assert!(world.family.app.awaits_split() && world.family.app.holds_rollout());
    world.children_ready();
    world.settle();
    assert!(!world.family.app.awaits_split());
}

#[test]
fn a_missing_revision_and_a_taken_name_are_reported_and_the_split_in_force_stays() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.settle();
    world.edit(&traffic(&[pinned(9, 50), latest(50)]));
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    let (reason, message) = world.condition().unwrap();
    assert_eq!(reason, "RevisionMissing");
    assert!(message.contains("there is no revision web-9"), "{message}");
    world.family.taken.insert(1);
    world.edit(&traffic(&[pinned(1, 50), latest(50)]));
    world.settle();
    assert_eq!(world.reason(), "NameTaken");
    assert!(
        plan(&world.family, world.now).due.is_some(),
        "it is tried again"
    );
    world.family.taken.clear();
    world.settle();
    assert_eq!(world.split(), [(1, 50, false), (3, 50, true)]);
    let warnings = world
        .events
        .iter()
        .filter(|reason| **reason != "TrafficSplit");
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        [&"RevisionMissing", &"NameTaken"]
    );
}

#[test]
fn a_child_without_a_vip_gets_no_share() {
    let mut world = World::new(&traffic(&[pinned(2, 50), latest(50)]));
    assert!(world.step());
    world.family.children.get_mut(&2).unwrap().spec.vip = None;
    world.settle();
    assert_eq!(
        (world.split(), world.reason().as_str()),
        (vec![], "RevisionNotReady")
    );
}

#[test]
fn a_tag_of_the_only_template_of_an_app_has_that_template() {
    let tagged = json!({"latestRevision": true, "percent": 100, "tag": "next"});
    let mut world = World::new(&traffic(&[tagged]));
    world.family.templates.clear();
    world.settle();
    assert_eq!(world.split(), [(3, 100, true), (3, 0, false)]);
}

#[test]
fn a_surplus_child_is_asleep_only_without_pods() {
    for awake in [true, false] {
        let mut world = World::new(&traffic(&[pinned(2, 100)]));
        world.settle();
        world.edit(&traffic(&[latest(100)]));
        let status = world.child_status(2);
        (status.ready, status.wanted) = (u32::from(awake), u32::from(awake));
        status.state = if awake { State::Awake } else { State::Asleep };
        world.report(1, 3, "NewRevisionAvailable");
        let first = plan(&world.family, world.now);
        assert!(first.takes_traffic && first.surplus.is_empty());
        world.family.app.status = first.status.map(|status| *status);
        let second = plan(&world.family, world.now);
        assert!(!second.takes_traffic);
        assert_eq!(second.surplus[0].sleeps, !awake);
    }
}

#[test]
fn a_child_begins_with_the_pods_of_its_share() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(5, 3, "NewRevisionAvailable");
    assert!(world.step());
    assert_eq!(world.floor(2), 5);
}

#[test]
fn a_target_that_loses_its_address_is_one_that_loses_traffic() {
    let tagged = json!({"revisionName": "web-1", "tag": "old"});
    let mut world = World::new(&traffic(&[latest(100), tagged]));
    world.settle();
    world.edit(&traffic(&[latest(100)]));
    assert!(plan(&world.family, world.now).takes_traffic);
}

#[test]
fn a_child_that_keeps_its_address_and_loses_its_share_is_one_that_loses_traffic() {
    let tagged = json!({"revisionName": "web-1", "tag": "old", "percent": 50});
    let mut world = World::new(&traffic(&[latest(50), tagged]));
    world.settle();
    let address = json!({"revisionName": "web-1", "tag": "old"});
    world.edit(&traffic(&[latest(100), address]));
    assert!(plan(&world.family, world.now).takes_traffic);
    world.settle();
    assert!(!plan(&world.family, world.now).takes_traffic);
}

#[test]
fn the_condition_has_the_time_at_which_its_status_changed() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(5, 3, "NewRevisionAvailable");
    let mut since = Vec::new();
    for ready in [1, 2, 5] {
        world.now += SignedDuration::from_secs(1);
        world.settle();
        world.child_status(2).ready = ready;
        world.settle();
        let condition = world.status().condition(TRAFFIC_READY).cloned().unwrap();
        since.push(condition.last_transition_time.0.as_second());
    }
    assert_eq!((since, world.reason().as_str()), (vec![1, 1, 3], "InForce"));
}

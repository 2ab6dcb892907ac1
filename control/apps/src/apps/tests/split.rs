//! An app whose traffic is split: what nodes and activators get, and what wakes it.

use dormouse_cluster::{Mode, Sticky, TrafficStatus};
use dormouse_fleet::proto::Target;

use super::*;
use world::VIP;

fn target(vip: &str, percent: u32, latest: bool) -> TrafficStatus {
    TrafficStatus {
        revision: if latest { 2 } else { 1 },
        percent,
        tag: None,
        vip: vip.parse().unwrap(),
        latest,
    }
}

fn targets(own: u32, other: u32) -> Vec<TrafficStatus> {
    vec![
        target("fd00:10::1", own, true),
        target("fd00:10::9", other, false),
    ]
}

/// A sleeping app, of whose traffic these percents are its own and another app's.
fn split(own: u32, other: u32) -> World {
    let mut world = small();
    world.execute_all();
    world.traffic(targets(own, other));
    world.execute_all();
    world
}

fn weights(own: u32, other: u32) -> Vec<Target> {
    let targets = [(VIP, own), (9, other)];
    targets.map(|(vip, weight)| Target { vip, weight }).into()
}

#[test]
fn nodes_and_activators_get_the_split_of_a_sleeping_app() {
    let mut world = split(90, 10);
    assert_eq!(world.entry().split, weights(90, 10));
    assert!(!world.entry().asleep, "no packet raises a wake event");
    assert_eq!(world.route.as_ref().unwrap().split, weights(90, 10));
    world.restart();
    world.execute_all();
    assert_eq!(world.wanted_entry().split, weights(90, 10));
    world.traffic(Vec::new());
    world.execute_all();
    assert!(world.entry().split.is_empty() && world.entry().asleep);
}

#[test]
fn only_a_request_for_the_apps_own_pods_wakes_it() {
    let mut world = split(0, 100);
    let route = world.want(VIP, 80).unwrap();
    world.woke();
    world.execute_all();
    assert!(world.pods.is_empty());
    assert_eq!(route.split, weights(0, 100));
    world.demand();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn an_app_with_sticky_requests_stays_in_proxy_mode_while_its_traffic_is_split() {
    let mut world = split(50, 50);
    world.edit(|spec| spec.sticky = Some(Sticky::Cookie("user".into())));
    world.demand();
    world.execute_until_ready();
    assert_eq!(world.entry().mode, Mode::Proxy);
    assert!(
        world.entry().split.is_empty(),
        "nodes do not select the target"
    );
    let route = world.route.clone().unwrap();
    assert_eq!(route.split, weights(50, 50));
    assert!(route.sticky.is_some());
    world.edit(|spec| spec.sticky = None);
    world.execute_all();
    assert_eq!(world.entry().mode, Mode::Serve);
    assert_eq!(world.entry().split, weights(50, 50));
}

#[test]
fn connections_that_are_counted_while_the_app_sleeps_do_not_scale_it_when_it_wakes() {
    let mut world = split(50, 50);
    for _ in 0..20 {
        world.connections(20.0);
    }
    world.demand();
    world.execute_all();
    world.ready_all();
    for _ in 0..4 {
        world.tick(1.0);
        world.execute_all();
    }
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn pods_for_a_share_start_while_the_app_sleeps_and_stay_without_load_until_the_floor_ends() {
    for with_record in [false, true] {
        let mut world = if with_record { split(0, 100) } else { small() };
        world.execute_all();
        world.floor(3);
        world.execute_all();
        assert_eq!(world.pods.len(), 3);
        world.ready_all();
        for _ in 0..60 {
            world.tick(0.0);
            world.execute_all();
        }
        assert_eq!((world.pods.len(), world.status().ready), (3, 3));
        world.restart();
        world.execute_all();
        for _ in 0..60 {
            world.tick(0.0);
            world.execute_all();
        }
        assert_eq!(world.pods.len(), 3, "after a restart of control");
        world.floor(0);
        for _ in 0..60 {
            world.tick(0.0);
            world.execute_all();
        }
        assert_eq!(world.pods.len(), 0, "it sleeps");
    }
}

/// The mode of the entry with a floor of three pods, at first and after two ticks, of an app with this minimum. `starting`: so many
/// ticks before they are ready.
fn modes_of_a_floor(mode: Mode, min: u32, starting: u32) -> (Mode, Mode) {
    let scale =
        serde_json::json!({"window": "6s", "targetBurstCapacity": 25, "target": 10, "min": min});
    let mut world = scaled(&scale);
    world.floor_in(mode, 3);
    // Control sees it with the floor first, as it sees a new child.
    world.restart();
    world.execute_all();
    for _ in 0..starting {
        world.tick(0.0);
        world.execute_all();
    }
    world.ready_all();
    let first = world.entry().mode;
    for _ in 0..2 {
        world.tick(0.0);
        world.execute_all();
    }
    (first, world.entry().mode)
}

#[test]
fn pods_for_a_share_are_in_the_mode_of_the_traffic_until_their_load_is_known() {
    for (min, starting) in [(0, 0), (0, 5), (1, 0), (1, 5)] {
        let modes = modes_of_a_floor(Mode::Serve, min, starting);
        assert_eq!(modes, (Mode::Serve, Mode::Serve), "{min} {starting}");
        let modes = modes_of_a_floor(Mode::Proxy, min, starting);
        assert_eq!(modes, (Mode::Proxy, Mode::Serve), "{min} {starting}");
    }
}

#[test]
fn a_floor_is_below_the_maximum_and_the_load_may_want_more() {
    let mut world = small();
    world.execute_all();
    world.floor(9);
    world.execute_all();
    assert_eq!(world.pods.len(), 4, "scale.max");
    let mut world = small();
    world.execute_all();
    world.floor(1);
    world.execute_all();
    world.ready_all();
    for _ in 0..10 {
        world.tick(30.0);
        world.execute_all();
    }
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn a_floor_starts_no_initial_pods() {
    let mut world = scaled(&serde_json::json!({"window": "6s", "initialScale": 4}));
    world.execute_all();
    assert_eq!(world.pods.len(), 4);
    world.ready_all();
    while !world.is_asleep() {
        world.tick(0.0);
        world.execute_all();
    }
    world.floor(2);
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
}

#[test]
fn the_pods_of_a_floor_that_ends_before_one_is_ready_are_removed_but_for_one() {
    for load in [0.0, 15.0] {
        let mut world = small();
        world.execute_all();
        world.floor(4);
        for _ in 0..5 {
            world.tick(load);
            world.execute_all();
        }
        assert_eq!(world.pods.len(), 4);
        world.floor(0);
        world.execute_all();
        let left = if load > 0.0 { 3 } else { 1 };
        assert_eq!(world.pods.len(), left, "with a load of {load}");
    }
}

#[test]
fn each_split_has_an_entry_of_its_own_also_if_nodes_do_not_get_it() {
    let mut world = split(50, 50);
    world.edit(|spec| spec.sticky = Some(Sticky::ClientIp {}));
    world.execute_all();
    let before = world.entries.len();
    world.traffic(targets(60, 40));
    world.execute_all();
    assert_eq!(world.entries.len(), before + 1);
    world.traffic(Vec::new());
    world.execute_all();
    assert_eq!(world.entries.len(), before + 2);
    let (version, entry) = world.entries.last().unwrap();
    assert!(entry.split.is_empty() && *version > 0);
}

#[test]
fn a_split_that_replaces_another_one_during_its_write_is_published_at_once() {
    for responses_first in [false, true] {
        let mut world = split(50, 50);
        world.responses_first = responses_first;
        world.traffic(targets(40, 60));
        assert!(world.is_writing());
        world.traffic_unseen(targets(0, 100));
        world.execute_all();
        assert_eq!(world.entry().split, weights(0, 100), "without a tick");
    }
}

#[test]
fn a_manifest_that_may_divide_traffic_costs_a_sleeping_app_no_record() {
    let mut world = small();
    world.edit(|spec| {
        let rollout = serde_json::json!({"duration": "10s"});
        spec.rollout = serde_json::from_value(rollout).unwrap();
    });
    world.split_for(1);
    world.execute_all();
    assert!(world.is_asleep());
    world.restart();
    world.execute_all();
    assert!(world.is_asleep());
    world.traffic(targets(0, 100));
    world.execute_all();
    assert!(!world.is_asleep());
}

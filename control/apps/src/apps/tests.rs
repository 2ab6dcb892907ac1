//! The controller with a model of its environment, which executes the actions in any order.

mod decisions;
mod explained;
mod failing;
mod limits;
mod planner;
mod rollout;
mod settings;
mod shards;
mod sick;
mod split;
mod takeover;
mod world;
mod written;

use dormouse_cluster::Mode;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::action::Action;
use crate::admission::Limits;
use crate::config::Config;
use crate::dispatch::Dispatch;
use crate::event::Input;
use crate::shards::Shards;
use planner::Planner;
use world::World;

fn scaled(scale: &serde_json::Value) -> World {
    World::new(&json!({
        "vip": "fd00:10::1",
        "port": 80,
        "targetPort": 8000,
        "container": {"name": "app", "command": ["serve"]},
        "scale": scale,
    }))
}

/// The demo's app: serve mode as soon as a pod is ready, and a short window.
fn small() -> World {
    scaled(&json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "max": 4}))
}

#[test]
fn a_sleeping_app_has_no_timer_and_its_status_is_asleep() {
    let mut world = small();
    world.execute_all();
    assert!(world.is_asleep());
    assert!(world.entry().asleep);
    assert!(world.apps.awake.is_empty());
    assert_eq!(world.tick(0.0), 0, "a tick has no actions");
}

#[test]
fn the_entry_of_an_app_that_falls_asleep_is_not_urgent_unless_its_pod_is_lost() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    assert_eq!(
        (world.entry().mode, world.entry().idle),
        (Mode::Serve, false)
    );
    while world.entry().mode == Mode::Serve {
        world.tick(0.0);
        world.execute_all();
    }
    let entry = world.entry();
    assert!(entry.idle && entry.settle && !entry.asleep, "{entry:?}");
    world.tick(2.0);
    world.execute_all();
    assert_eq!(world.entry().mode, Mode::Serve);
    while !world.is_writing() {
        world.tick(0.0);
    }
    world.fail_write();
    world.fail_one("Error");
    world.execute_all();
    assert_eq!(world.entry().mode, Mode::Serve);
    while world.entry().mode == Mode::Serve {
        world.tick(0.0);
        world.execute_all();
    }
    assert!(!world.entry().idle, "its pod is lost");
}

#[test]
fn a_packet_and_a_request_wake_an_app_once() {
    let mut world = small();
    world.execute_all();
    world.woke();
    world.demand();
    world.woke();
    world.demand();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.apps.wakes.of(world::VIP).count(), 1);
    world.ready_all();
    world.demand();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    let wake = world.apps.wakes.of(world::VIP).next().unwrap().clone();
    let stages: Vec<_> = wake.stages().iter().map(|stage| stage.name).collect();
    assert_eq!(
        stages,
        ["see", "park", "decide", "place", "wire", "start", "ready"]
    );
}

#[test]
fn a_request_parked_for_an_app_that_was_deleted_while_no_control_ran_is_answered() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.execute_all();
    assert!(world.route.is_some());
    world.forget_app();
    world.restart();
    world.demand();
    world.execute_all();
    assert_eq!(world.route, None);
}

#[test]
fn a_request_that_an_activator_asks_about_wakes_its_app_on_the_apps_port_only() {
    let mut world = small();
    world.execute_all();
    assert_eq!(world.ports, BTreeSet::from([80]));
    let refused = world.want(world::VIP, 81).expect("a route");
    assert_eq!((refused.port, refused.backends), (80, vec![]));
    world.execute_all();
    assert!(world.pods.is_empty(), "another port wakes nothing");
    assert_eq!(world.reads, 0, "and reads nothing");
    assert_eq!(world.want(world::VIP + 1, 80), None, "there is no such app");
    let parked = world.want(world::VIP, 80).expect("a route");
    assert!(parked.backends.is_empty());
    assert_eq!(parked.timeout, world.app.as_ref().unwrap().spec.timeout());
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    world.ready_all();
    world.execute_all();
    assert_eq!(world.route.unwrap().backends.len(), 1);
}

#[test]
fn an_app_without_burst_capacity_serves_as_soon_as_a_pod_is_ready() {
    let mut world = small();
    world.demand();
    world.execute_all();
    assert_eq!(world.status().state, dormouse_cluster::State::Waking);
    world.ready_all();
    world.execute_all();
    assert_eq!(world.entry().mode, Mode::Serve);
    assert_eq!(world.entry().backends.len(), 1);
    assert!(!world.entry().asleep);
    assert!(world.serving());
}

#[test]
fn an_app_with_a_limit_of_requests_stays_in_proxy_mode_and_says_why() {
    let mut world = scaled(
        &json!({"window": "6s", "targetBurstCapacity": 0, "containerConcurrency": 10, "max": 4}),
    );
    world.demand();
    world.execute_all();
    world.ready_all();
    world.tick(1.0);
    world.execute_all();
    let record = &world.apps.records[&world::VIP];
    assert!(
        record.path.serves(),
        "the autoscaler's decision stays Knative's"
    );
    assert_eq!(world.entry().mode, Mode::Proxy);
    assert_eq!(world.status().mode, Mode::Proxy);
    assert!(!world.serving());
    let explained = crate::explain::explain(record, None, world.now).to_string();
    assert!(explained.contains("containerConcurrency 10"), "{explained}");
    world.edit(|spec| spec.scale.container_concurrency = 0);
    world.tick(1.0);
    world.execute_all();
    assert_eq!(world.entry().mode, Mode::Serve);
}

#[test]
fn a_pod_whose_creation_had_no_response_counts_once_the_store_shows_it() {
    let mut world = small();
    world.responses_lost = 1;
    world.demand();
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.apps.records[&world::VIP].live(), 1);
    world.ready_all();
    world.execute_all();
    assert_eq!(world.entry().backends.len(), 1);
}

#[test]
fn an_idle_app_sleeps_after_its_window_and_the_grace_and_wakes_again() {
    let mut world = small();
    for round in 1..=2 {
        world.demand();
        world.execute_all();
        world.ready_all();
        let mut seconds = 0;
        while !world.pods.is_empty() {
            world.tick(0.0);
            world.execute_all();
            seconds += 1;
            assert!(seconds < 30, "still awake in round {round}");
        }
        assert!((6..=12).contains(&seconds), "asleep after {seconds} s");
        assert!(world.is_asleep());
        assert!(world.entry().asleep);
        assert!(world.apps.awake.is_empty());
    }
    assert_eq!(world.apps.wakes.of(world::VIP).count(), 2);
}

#[test]
fn direct_load_keeps_an_app_awake() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    for _ in 0..20 {
        world.connections(0.01);
        world.tick(0.0);
        world.execute_all();
    }
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.entry().mode, Mode::Serve);
}

#[test]
fn load_scales_pods_up_to_the_limit() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    for _ in 0..5 {
        world.connections(100.0);
        world.tick(0.0);
        world.execute_all();
        world.ready_all();
    }
    world.execute_all();
    assert_eq!(world.entry().backends.len(), 4);
}

#[test]
fn a_small_app_with_the_default_burst_capacity_stays_in_proxy_mode_and_explain_gives_the_reason() {
    let mut world = scaled(&json!({"window": "6s"}));
    world.demand();
    world.execute_all();
    world.ready_all();
    for _ in 0..3 {
        world.tick(1.0);
        world.execute_all();
    }
    assert_eq!(world.entry().mode, Mode::Proxy);
    let explanation =
        crate::explain::explain(&world.apps.records[&world::VIP], None, world.now).to_string();
    assert!(
        explanation.contains("floor(1×100 - 211 - 1) = -112, below 0"),
        "{explanation}"
    );
    assert!(
        explanation.contains("with 3 ready pods (EBC 88), or target-burst-capacity ≤ 99"),
        "{explanation}"
    );
}

#[test]
fn a_failed_pod_is_replaced_at_once_and_later_ones_with_back_off() {
    let mut world = small();
    world.demand();
    world.execute_all();
    let first = world.fail_one("Error");
    world.execute_all();
    assert!(!world.pods.contains_key(&first));
    assert_eq!(world.pods.len(), 1);
    world.fail_one("Error");
    world.execute_all();
    assert!(world.pods.is_empty(), "the second failure waits");
    assert_eq!(world.status().failure.unwrap().reason, "CrashLoopBackOff");
    for _ in 0..11 {
        world.tick(1.0);
        world.execute_all();
    }
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn a_pod_deleted_by_a_user_is_stopped_and_replaced() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    let pod = world.pods.keys().next().unwrap().clone();
    world.stopped.clear();
    world.remove(&pod);
    world.execute_all();
    assert_eq!(world.stopped.concat(), pod.name);
    assert_eq!(world.pods.len(), 1);
    assert!(!world.pods.contains_key(&pod));
}

#[test]
fn a_deleted_app_leaves_nothing() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    world.delay_settling = true;
    world.delete_app();
    world.execute_all();
    assert!(world.gone);
    assert_eq!(world.pods.len(), 1, "a node may still forward to it");
    world.delay_settling = false;
    world.execute_all();
    assert!(world.pods.is_empty());
    assert!(world.apps.records.is_empty());
}

#[test]
fn a_lost_nodes_pods_are_replaced_and_the_entry_is_without_them() {
    let mut world = small();
    world.demand();
    world.execute_until_ready();
    let before = world.entry().backends;
    world.node_down();
    world.execute_until_ready();
    assert_eq!(world.pods.len(), 1);
    assert_ne!(world.entry().backends, before);
}

#[test]
fn a_pod_that_is_placed_on_a_lost_node_is_replaced_once_there_is_a_node() {
    let mut world = small();
    world.node_listed();
    world.node_up();
    world.demand();
    world.node_down();
    world.execute_all();
    assert_eq!(world.apps.records[&world::VIP].live(), 0);
    assert_eq!(world.apps.records[&world::VIP].backoff.failures(), 2);
    world.node_up();
    for _ in 0..11 {
        world.tick(1.0);
        world.execute_all();
    }
    world.ready_all();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.status().state, dormouse_cluster::State::Awake);
}

#[test]
fn a_pod_whose_node_is_lost_while_its_app_is_read_is_failed() {
    let mut world = small();
    world.execute_all();
    world.node_listed();
    world.pod_of_another_control();
    world.node_down();
    world.answer_read();
    assert_eq!(world.apps.records[&world::VIP].backoff.failures(), 1);
}

#[test]
fn an_app_that_is_recreated_uses_no_pod_of_the_previous_one() {
    let mut world = scaled(&json!({"window": "6s", "min": 1, "targetBurstCapacity": 0}));
    world.execute_all();
    world.ready_all();
    let before = world.pods.keys().next().unwrap().clone();
    world.replace_app();
    world.execute_all();
    world.ready_all();
    assert!(!world.pods.contains_key(&before));
    assert_eq!(world.pods.len(), 1);
    assert_eq!(world.status().state, dormouse_cluster::State::Awake);
}

#[test]
fn a_new_control_takes_over_the_pods_and_the_mode() {
    let mut world = small();
    world.demand();
    world.execute_until_ready();
    let (pods, version) = (world.pods.clone(), world.entries.last().unwrap().0);
    world.restart();
    world.execute_all();
    assert_eq!(world.pods, pods);
    assert_eq!(world.entry().mode, Mode::Serve);
    assert!(world.entries.last().unwrap().0 > version);
    world.connections(1.0);
    world.tick(0.0);
    world.execute_all();
    assert_eq!(world.pods, pods);
}

#[test]
fn a_new_control_announces_a_sleeping_app_without_a_write() {
    let mut world = small();
    world.execute_all();
    let revision = world.revision;
    world.restart();
    world.execute_all();
    assert_eq!(world.revision, revision);
    assert!(world.entry().asleep);
    assert!(world.is_asleep());
    assert_eq!(world.reads, 0);
}

#[test]
fn a_wake_reads_the_app_once_and_loses_nothing_that_arrives_meanwhile() {
    let mut world = small();
    world.execute_all();
    world.woke();
    world.demand();
    world.demand();
    world.execute_all();
    assert_eq!((world.reads, world.pods.len()), (1, 1));
    let wake = world.apps.wakes.of(world::VIP).next().unwrap().clone();
    let stages: Vec<_> = wake.stages().iter().map(|stage| stage.name).collect();
    assert_eq!(stages[..3], ["see", "park", "decide"]);
}

#[test]
fn a_change_during_a_wake_is_used_in_place_of_the_read() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.edit(|spec| spec.container.command = Some(vec!["serve-better".into()]));
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    let pod = world.pods.values().next().unwrap();
    let command = pod.spec.as_ref().unwrap().containers[0].command.clone();
    assert_eq!(command, Some(vec!["serve-better".to_owned()]));
}

#[test]
fn an_app_that_is_deleted_during_its_wake_starts_no_pod() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.delete_app();
    world.execute_all();
    assert!(world.pods.is_empty() && world.gone);
    assert!(world.apps.records.is_empty());
    assert_eq!(world.apps.sleep.vips().count(), 0);
}

#[test]
fn a_failed_read_is_repeated() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.fail_read();
    world.execute_all();
    assert!(world.pods.is_empty());
    world.tick(0.0);
    world.tick(0.0);
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn a_pod_that_appears_for_a_sleeping_app_is_removed() {
    let mut world = small();
    world.execute_all();
    world.pod_of_another_control();
    world.execute_all();
    world.tick(0.0);
    world.execute_all();
    assert!(world.pods.is_empty());
    assert!(world.is_asleep());
}

#[test]
fn a_pod_that_appears_after_its_apps_withdrawal_is_removed() {
    let mut world = small();
    world.demand();
    world.execute_all();
    world.ready_all();
    let late = world.new_pod();
    world.delay_settling = true;
    world.delete_app();
    world.execute_all();
    assert!(world.gone);
    world.pod_appears(late);
    world.delay_settling = false;
    world.execute_all();
    assert!(world.pods.is_empty());
}

#[test]
fn a_surplus_pod_that_appears_while_an_app_wakes_is_removed_without_another_entry() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.execute_all();
    let late = world.new_pod();
    world.pod_appears(late);
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
    assert!(world.entry().asleep);
}

#[test]
fn a_new_control_adopts_a_pod_of_an_app_whose_stored_status_is_asleep() {
    let mut world = small();
    world.execute_all();
    world.pod_of_another_control();
    world.restart();
    world.execute_all();
    world.ready_all();
    assert_eq!((world.reads, world.pods.len()), (1, 1));
    assert_eq!(world.status().state, dormouse_cluster::State::Awake);
}

#[test]
fn a_sleeping_app_with_a_new_minimum_starts_its_pods() {
    let mut world = small();
    world.execute_all();
    world.edit(|spec| spec.scale.min = Some(2));
    world.tick(0.0);
    world.tick(0.0);
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
}

#[test]
fn a_sleeping_app_with_a_new_port_is_announced_with_it() {
    let mut world = small();
    world.execute_all();
    world.edit(|spec| spec.port = 81);
    world.execute_all();
    assert!(world.is_asleep());
    assert_eq!((world.entry().port, world.reads), (81, 0));
}

#[test]
fn a_new_list_without_an_app_deletes_it_asleep_or_awake() {
    for is_awake in [false, true] {
        let mut world = small();
        world.execute_all();
        if is_awake {
            world.demand();
            world.execute_all();
            world.ready_all();
        }
        world.forget_app();
        world.listed();
        world.execute_all();
        assert!(world.gone, "awake: {is_awake}");
        assert!(world.pods.is_empty());
        assert!(world.apps.records.is_empty());
    }
}

#[test]
fn a_new_list_of_the_same_objects_changes_nothing() {
    let mut world = small();
    world.demand();
    world.execute_until_ready();
    let (revision, pods) = (world.revision, world.pods.clone());
    world.listed();
    world.execute_all();
    assert_eq!((world.revision, world.pods), (revision, pods));
}

#[test]
fn the_explanation_of_a_sleeping_app_has_its_address() {
    let mut world = small();
    world.execute_all();
    let key = Key::new("default", "web");
    let explanation = crate::explain::asleep(&key, world::VIP, &world.apps, world.now).to_string();
    assert!(
        explanation.contains("asleep, VIP fd00:10::1"),
        "{explanation}"
    );
}

#[test]
fn an_app_with_a_minimum_runs_without_traffic() {
    let mut world = scaled(&json!({"window": "6s", "min": 2, "targetBurstCapacity": 0}));
    for _ in 0..20 {
        world.execute_all();
        world.ready_all();
        world.tick(0.0);
    }
    assert_eq!(world.pods.len(), 2);
    assert_eq!(world.entry().mode, Mode::Serve);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // `World` itself fails on the deletion of a pod that a node's entry may contain, on a second plan with actions, and
    // on more live pods than the limit.
    #[test]
    fn invariants_hold_for_any_events_in_any_order(
        steps in prop::collection::vec((0u8..14, any::<u16>()), 1..150),
        burst in prop::sample::select(vec![0, -1, 5, 211]),
        limit in prop::sample::select(vec![0, 10]),
    ) {
        let mut world = scaled(&json!({
            "window": "6s", "targetBurstCapacity": burst, "target": 10, "containerConcurrency": limit, "max": 4,
        }));
        world.edit(|spec| spec.progress_deadline_seconds = 5);
        for (step, number) in steps {
            world.step(step, number);
        }
        world.delay_settling = false;
        world.execute_all();
        for _ in 0..400 {
            world.tick(0.0);
            world.execute_all();
            world.ready_all();
        }
        prop_assert!(world.pods.is_empty(), "left: {:?}", world.pods.keys());
        prop_assert!(world.apps.awake.is_empty());
    }
}

#[test]
fn the_entry_of_an_app_is_announced_when_a_node_follows_it_and_no_other_vip_exists() {
    let mut world = small();
    world.execute_all();
    let asleep = world.wanted(world::VIP);
    assert!(
        matches!(&asleep[..], [Action::Announce { entry, .. }] if entry.asleep),
        "{asleep:?}"
    );
    world.demand();
    world.execute_all();
    world.ready_all();
    let awake = world.wanted(world::VIP);
    let (version, newest) = world.entries.last().unwrap();
    assert!(
        matches!(&awake[..], [Action::Announce { version: answered, entry, .. }]
            if answered == version && entry == newest && !entry.asleep),
        "{awake:?}"
    );
    let vip = world::VIP + 1;
    assert_eq!(world.wanted(vip), [Action::Absent { vip }]);
}

#[test]
fn an_entry_that_may_be_replaced_is_no_answer_until_its_write_has_ended() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.execute_all();
    world.ready_all();
    let record = world.apps.records.get_mut(&world::VIP).unwrap();
    let (status, listing) = (plan::status(record), plan::listing(record));
    let published = &mut record.published;
    published.wanted = true;
    published.in_progress = Some((status, Some(listing)));
    assert_eq!(published.announce(world::VIP), None);
    published.in_progress = None;
    assert!(published.announce(world::VIP).is_some());
    assert_eq!(published.announce(world::VIP), None, "answered");
}

#[test]
fn no_vip_of_a_deleted_app_is_announced() {
    let mut world = small();
    world.execute_all();
    world.delete_app();
    world.execute_all();
    let vip = world::VIP;
    assert_eq!(world.wanted(vip), [Action::Absent { vip }]);
}

#[test]
fn only_a_packet_to_the_port_and_protocol_of_an_app_wakes_it() {
    let mut world = small();
    world.execute_all();
    world.woke_by(81, 6);
    world.woke_by(80, 17);
    world.execute_all();
    assert_eq!(world.pods.len(), 0);
    world.woke_by(80, 6);
    world.execute_all();
    assert_eq!(world.pods.len(), 1);
}

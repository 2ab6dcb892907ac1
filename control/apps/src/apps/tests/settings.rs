//! Knative's annotations of an app, asleep and awake.

use serde_json::Value;

use super::world::VIP;
use super::*;

/// An app without scale settings.
fn silent() -> World {
    let mut world = scaled(&json!({}));
    world.execute_all();
    world
}

/// An app with these settings that was just woken, and has a ready pod.
fn woken(scale: &Value) -> World {
    let mut world = scaled(scale);
    world.execute_all();
    world.demand();
    world.execute_all();
    world.ready_all();
    world
}

/// The app is awake, with a pod that is ready.
fn awake() -> World {
    woken(&json!({}))
}

#[test]
fn a_sleeping_app_with_an_annotated_minimum_starts_its_pods() {
    let mut world = silent();
    world.annotate("minScale", "2");
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
    world.edit(|spec| spec.scale.min = Some(3));
    world.execute_all();
    assert_eq!(world.pods.len(), 3, "the manifest wins");
}

#[test]
fn a_new_app_has_its_annotated_initial_scale_once() {
    let mut world = silent();
    world.annotate("initial-scale", "3");
    world.execute_all();
    assert!(world.is_asleep(), "it is not new");
    world.replace_app();
    world.execute_all();
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn an_annotation_of_an_awake_app_counts_from_the_next_decision_on() {
    let mut world = awake();
    assert_eq!(world.apps.records[&VIP].want, 1);
    world.annotate("activation-scale", "2");
    world.annotate("window", "20s");
    assert_eq!(world.apps.records[&VIP].settings.stable_window_s, 20);
    world.tick(1.0);
    world.tick(1.0);
    world.execute_all();
    assert_eq!(world.apps.records[&VIP].want, 2);
    let reads = world.reads;
    world.app.as_mut().unwrap().metadata.annotations = None;
    world.edit(|_| {});
    assert_eq!(world.apps.records[&VIP].settings.stable_window_s, 60);
    assert_eq!(world.reads, reads);
}

#[test]
fn an_app_wakes_with_its_annotated_activation_scale() {
    let mut world = silent();
    world.annotate("activation-scale", "3");
    world.execute_all();
    assert!(world.is_asleep());
    world.demand();
    world.execute_all();
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn an_annotation_that_is_not_valid_is_ignored_and_the_status_names_it() {
    let mut world = awake();
    world.annotate("min-scale", "-1");
    world.annotate("max-scale", "3");
    world.execute_all();
    let settings = &world.apps.records[&VIP].settings;
    assert_eq!((settings.min_scale, settings.max_scale), (0, 3));
    let failure = world.status().failure.unwrap();
    assert_eq!(failure.reason, "InvalidAnnotation");
    assert!(
        failure
            .message
            .contains("autoscaling.knative.dev/min-scale")
    );
    let app = world.app.as_ref().unwrap();
    let lines = crate::explain::settings::settings(app, &world.apps.shared.settings);
    assert_eq!(lines[0], "max 3: annotation max-scale");
    let ignored = "ignored: annotation autoscaling.knative.dev/min-scale";
    assert!(lines[1].starts_with(ignored), "{lines:?}");
    assert_eq!(world.route.as_ref().unwrap().problem, None);
    world.annotate("min-scale", "1");
    world.execute_all();
    assert_eq!(world.status().failure, None);
}

#[test]
fn an_app_with_an_invalid_annotation_sleeps_too() {
    let mut world = awake();
    world.annotate("min-scale", "x");
    for _ in 0..200 {
        world.tick(0.0);
        world.execute_all();
    }
    assert!(world.apps.sleep.get(VIP).is_some());
    world.restart();
    world.execute_all();
    assert!(world.apps.sleep.get(VIP).is_some());
}

/// Whether the app is in mode serve, and the lines about its mode.
fn mode(world: &World) -> (bool, String) {
    let record = &world.apps.records[&VIP];
    let explained = crate::explain::explain(record, None, world.now);
    let topics = explained["topics"].as_array().unwrap();
    let mode = topics.iter().find(|topic| topic["name"] == "mode");
    (record.path.serves(), mode.unwrap()["lines"].to_string())
}

#[test]
fn with_hysteresis_the_activator_leaves_the_path_after_two_decisions_with_a_margin() {
    // One pod has 100, and the margin is 5.
    let mut world =
        woken(&json!({"window": "6s", "targetBurstCapacity": 50, "serveHysteresis": true}));
    let modes: Vec<_> = (0..8)
        .map(|_| {
            world.tick(47.0);
            world.execute_all();
            mode(&world)
        })
        .collect();
    assert!(modes.iter().all(|(serves, _)| !serves), "{modes:?}");
    let (_, text) = modes.last().unwrap();
    let waits =
        "waits for EBC 5 or more in 2 more of 2 decisions in a row (spec.scale.serveHysteresis)";
    assert!(text.contains(waits), "{text}");
    world.edit(|spec| spec.scale.serve_hysteresis = None);
    world.tick(47.0);
    assert!(mode(&world).0, "Knative's rule");
}

#[test]
fn with_a_dwell_the_activator_stays_in_the_path_for_that_time_after_it_has_entered_it() {
    let mut world = woken(&json!({"window": "6s", "targetBurstCapacity": 50, "proxyDwell": "30s"}));
    let mut run = |load: f64, seconds: u32| {
        for _ in 0..seconds {
            world.tick(load);
            world.execute_all();
        }
        mode(&world)
    };
    assert!(run(10.0, 8).0, "the first change does not wait");
    assert!(!run(65.0, 2).0, "the activator enters at once");
    let (serves, text) = run(10.0, 20);
    assert!(!serves && text.contains("spec.scale.proxyDwell"), "{text}");
    assert!(run(10.0, 12).0);
}

/// The ConfigMap has these entries from now on.
fn config(world: &World, entries: &[(&str, &str)]) {
    let settings = &world.apps.shared.settings;
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let cluster = settings.defaults().clone();
    settings.set(Arc::new(cluster.with_entries(&entries.collect()).unwrap()));
}

#[test]
fn a_change_of_the_config_map_counts_for_awake_apps_from_the_next_decision_on() {
    let mut world = awake();
    config(&world, &[("stable-window", "20s"), ("min-scale", "3")]);
    world.tick(1.0);
    world.tick(1.0);
    world.execute_all();
    let record = &world.apps.records[&VIP];
    assert_eq!((record.settings.stable_window_s, record.want), (20, 3));
    world.edit(|spec| spec.scale.min = Some(2));
    assert_eq!(world.apps.records[&VIP].settings.min_scale, 2);
    assert_eq!(world.apps.records[&VIP].settings.stable_window_s, 20);
}

#[test]
fn a_sleeping_app_wakes_with_the_settings_of_the_config_map() {
    let mut world = silent();
    config(&world, &[("target-burst-capacity", "0")]);
    assert!(world.is_asleep(), "it costs sleeping apps nothing");
    world.demand();
    world.execute_all();
    let capacity = world.apps.records[&VIP].settings.target_burst_capacity;
    assert!(capacity.abs() < 1e-9);
}

#[test]
fn a_sleeping_app_that_has_pods_without_load_by_the_config_map_starts_them() {
    for entries in [[("min-scale", "1")], [("enable-scale-to-zero", "false")]] {
        let mut world = silent();
        config(&world, &entries);
        world.event(Event::Start { vip: VIP });
        world.execute_all();
        assert_eq!(world.pods.len(), 1, "{entries:?}");
        world.ready_all();
        for _ in 0..200 {
            world.tick(0.0);
            world.execute_all();
        }
        assert_eq!(world.pods.len(), 1, "{entries:?}");
    }
    let mut world = silent();
    world.event(Event::Start { vip: VIP });
    world.execute_all();
    assert_eq!(world.pods.len(), 0, "the settings changed back meanwhile");
}

#[test]
fn a_new_app_has_the_initial_scale_of_the_config_map() {
    let mut world = silent();
    config(&world, &[("initial-scale", "2")]);
    world.replace_app();
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
}

#[test]
fn a_new_control_starts_no_initial_pods_of_an_app_that_it_finds_asleep() {
    let mut world = silent();
    world.app.as_mut().unwrap().metadata.generation = Some(1);
    world.annotate("initial-scale", "2");
    world.replace_app();
    world.execute_all();
    assert_eq!(world.pods.len(), 2);
    world.ready_all();
    while world.apps.sleep.get(VIP).is_none() {
        world.tick(0.0);
        world.execute_all();
    }
    world.restart();
    world.execute_all();
    assert_eq!(world.pods.len(), 0, "it had its initial pods");
    world.annotate("min-scale", "1");
    world.execute_all();
    assert_eq!(world.pods.len(), 1, "only a new app has the initial ones");
}

#[test]
fn the_initial_scale_of_the_config_map_is_that_of_apps_created_later() {
    let mut world = silent();
    world.apps = Planner::new(world::config(), 1, 2);
    config(&world, &[("initial-scale", "2")]);
    world.listed();
    world.execute_all();
    assert!(world.is_asleep());
}

#[test]
fn with_hysteresis_the_mode_changes_with_the_second_decision_that_has_the_margin() {
    let mut world =
        woken(&json!({"window": "6s", "targetBurstCapacity": 50, "serveHysteresis": true}));
    let modes: Vec<_> = (0..4)
        .map(|_| {
            world.tick(40.0);
            world.execute_all();
            mode(&world).0
        })
        .collect();
    let first = modes.iter().position(|serves| *serves);
    assert_eq!(first, Some(1), "{modes:?}");
}

#[test]
fn explain_names_the_source_of_the_least_and_of_the_greatest_number_of_pods() {
    let idle = |world: &mut World| {
        for _ in 0..90 {
            world.tick(0.0);
            world.execute_all();
            world.ready_all();
        }
        crate::explain::explain(&world.apps.records[&VIP], None, world.now).to_string()
    };
    let check = |text: &str, source: &str| {
        let never = format!("never: {source}");
        let changes = format!("the load wants fewer; {source} changes it");
        for part in [never, changes] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    };
    let mut world = awake();
    config(&world, &[("enable-scale-to-zero", "false")]);
    let of_config = idle(&mut world);
    check(
        &of_config,
        "enable-scale-to-zero false of the ConfigMap config-autoscaler",
    );
    config(&world, &[("min-scale", "2"), ("max-scale", "2")]);
    let of_config = idle(&mut world);
    check(&of_config, "min-scale 2 of the ConfigMap config-autoscaler");
    let most = "never more: max-scale 2 of the ConfigMap config-autoscaler";
    assert!(of_config.contains(most), "{of_config}");
    world.annotate("minScale", "1");
    check(&idle(&mut world), "annotation min-scale 1");
    world.edit(|spec| spec.scale.min = Some(2));
    check(&idle(&mut world), "scale.min 2");
}

//! The last decisions about an app, in its explanation and in the metrics.

use dormouse_activator::Unanswered;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::world::VIP;
use super::*;

/// The count of changes of the wanted pods with these labels.
fn counted(world: &World, labels: &str) -> String {
    counter(
        world,
        &format!("dormouse_scale_decisions_total{{{labels}}} "),
    )
}

/// The value of the counter whose line begins so.
fn counter(world: &World, start: &str) -> String {
    let mut registry = Registry::default();
    world.apps.shared.metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.unwrap_or("none").to_owned()
}

/// `reason wanted` of each decision, the newest first.
fn decisions(world: &World) -> Vec<String> {
    let explained = crate::explain::explain(&world.apps.records[&VIP], None, world.now);
    let list = explained["decisions"].as_array().unwrap();
    let line = |entry: &serde_json::Value| {
        format!("{} {}", entry["reason"].as_str().unwrap(), entry["wanted"])
    };
    list.iter().map(line).collect()
}

#[test]
fn decisions_are_explained_and_counted_from_the_wake_to_the_sleep() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.execute_until_ready();
    for load in [1.0, 20.0, 20.0, 20.0] {
        world.tick(load);
        world.execute_all();
        world.ready_all();
    }
    assert_eq!(decisions(&world), ["panic 3", "load 1", "wake 1", "wake 1"]);
    let explained = crate::explain::explain(&world.apps.records[&VIP], None, world.now);
    let newest = &explained["decisions"][0];
    assert_eq!(
        (&newest["ready"], &newest["mode"]),
        (&json!(1), &json!("Serve"))
    );
    assert_eq!(
        (&newest["ageSeconds"], &newest["lastedSeconds"]),
        (&json!(2), &json!(2))
    );
    let terms = explained["terms"].to_string();
    for term in [
        "READY", "STABLE", "PANIC", "EBC", "WANT", "wake", "load", "panic",
    ] {
        assert!(
            terms.contains(&format!("\"name\":\"{term}\"")),
            "{term}: {terms}"
        );
    }
    for _ in 0..60 {
        if world.is_asleep() {
            break;
        }
        world.tick(0.0);
        world.execute_all();
    }
    assert!(world.is_asleep());
    let app = Key::new("default", "web");
    let asleep = crate::explain::asleep(&app, VIP, &world.apps, world.now);
    let newest = &asleep["decisions"][0];
    assert_eq!(
        (&newest["reason"], &newest["wanted"]),
        (&json!("sleep"), &json!(0))
    );
    let terms = asleep["terms"].to_string();
    assert!(terms.contains("scale.min 1 keeps a pod"), "{terms}");
    let label = |direction, window, reason| {
        format!("direction=\"{direction}\",window=\"{window}\",reason=\"{reason}\"")
    };
    assert_eq!(counted(&world, &label("up", "stable", "wake")), "1");
    assert_eq!(counted(&world, &label("up", "panic", "panic")), "1");
    assert_eq!(counted(&world, &label("down", "stable", "sleep")), "1");
}

#[test]
fn explain_gives_the_loads_at_which_the_number_of_pods_changes() {
    let mut world =
        scaled(&json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "max": 2}));
    world.demand();
    world.execute_all();
    world.ready_all();
    world.tick(1.0);
    let changes = |world: &World| {
        let explained = crate::explain::explain(&world.apps.records[&VIP], None, world.now);
        let topics = explained["topics"].as_array().unwrap().clone();
        let topic = topics
            .into_iter()
            .find(|topic| topic["name"] == "scales at");
        topic.unwrap()["lines"].clone()
    };
    let one = json!(["2 pods when STABLE exceeds 7", "panic when PANIC exceeds 7"]);
    assert_eq!(changes(&world), one);
    for _ in 0..3 {
        world.tick(30.0);
        world.execute_all();
        world.ready_all();
    }
    let two = json!([
        "never more: scale.max 2",
        "1 pod when STABLE is 7 or less, and panic is over for 6 s"
    ]);
    assert_eq!(changes(&world), two);
}

/// The reasons for which fewer pods were wanted, after a load of several pods fell to that of one.
fn reasons_to_remove(more: &serde_json::Value) -> Vec<&'static str> {
    let mut scale =
        json!({"window": "6s", "targetBurstCapacity": 0, "target": 10, "max": 8, "min": 1});
    let fields = more.as_object().unwrap().clone();
    scale.as_object_mut().unwrap().extend(fields);
    let mut world = scaled(&scale);
    world.demand();
    world.execute_all();
    world.ready_all();
    for load in [60.0; 15].into_iter().chain([3.0; 20]) {
        world.tick(load);
        world.execute_all();
        world.ready_all();
    }
    assert_eq!(world.pods.len(), 1);
    let reasons = ["load", "delay", "rates", "min", "idle", "sleep", "panic"];
    let label = |reason: &str| format!("direction=\"down\",window=\"stable\",reason=\"{reason}\"");
    let counted = |reason: &&'static str| counted(&world, &label(reason)) != "none";
    reasons.into_iter().filter(counted).collect()
}

#[test]
fn fewer_pods_are_counted_with_the_reason_for_which_they_are_enough() {
    assert_eq!(reasons_to_remove(&json!({})), ["load"]);
    // After the delay, the rate limits how many go at once.
    let delayed = reasons_to_remove(&json!({"scaleDownDelay": "4s"}));
    assert_eq!(delayed, ["load", "delay", "rates"]);
    let slowly = reasons_to_remove(&json!({"maxScaleDownRate": 1.2}));
    assert!(
        slowly.contains(&"rates") && !slowly.contains(&"delay"),
        "{slowly:?}"
    );
}

#[test]
fn a_wake_is_counted_by_how_its_last_request_ended() {
    let ends = [
        (Unanswered::Abandoned, "abandoned"),
        (Unanswered::TimedOut, "timed_out"),
        (Unanswered::Failed, "failed"),
        (Unanswered::Refused, "refused"),
    ];
    for (how, outcome) in ends {
        let mut world = small();
        world.demand();
        world.execute_all();
        for _ in 0..2 {
            world.unanswered(how);
        }
        for (_, one) in ends {
            let start = format!("dormouse_wakes_total{{outcome=\"{one}\"}} ");
            let expected = if one == outcome { "1" } else { "none" };
            assert_eq!(counter(&world, &start), expected, "{how:?}: {one}");
        }
        let wake = world.apps.wakes.of(VIP).next().unwrap().json();
        assert_eq!(wake["outcome"], outcome);
    }
}

#[test]
fn a_request_that_is_refused_before_it_wakes_its_app_is_a_wake_that_was_refused() {
    let mut world = small();
    world.execute_all();
    assert!(world.is_asleep());
    world.unanswered(Unanswered::Refused);
    assert!(world.is_asleep());
    let wake = world.apps.wakes.of(VIP).next().unwrap().json();
    assert_eq!(
        (&wake["outcome"], &wake["endedIn"]),
        (&json!("refused"), &json!("park"))
    );
    let refused = "dormouse_wakes_total{outcome=\"refused\"} ";
    assert_eq!(counter(&world, refused), "1");
    world.demand();
    world.execute_all();
    let wakes: Vec<_> = world
        .apps
        .wakes
        .of(VIP)
        .map(|wake| wake.json()["outcome"].clone())
        .collect();
    assert_eq!(wakes, [json!(null), json!("refused")]);
}

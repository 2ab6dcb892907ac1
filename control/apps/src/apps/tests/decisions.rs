//! The last decisions about an app, in its explanation and in the metrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::world::VIP;
use super::*;

/// The count of changes of the wanted pods with these labels.
fn counted(world: &World, labels: &str) -> String {
    let mut registry = Registry::default();
    world.apps.shared.metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let start = format!("dormouse_scale_decisions_total{{{labels}}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
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
    world.execute_all();
    world.ready_all();
    world.execute_all();
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

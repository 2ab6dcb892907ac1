//! Scenarios of settings: the cluster's configuration and a revision's annotations.

use std::collections::BTreeMap;

use dormouse_autoscaler::Settings;
use dormouse_autoscaler::settings::Cluster;
use serde_json::{Map, Value, json};

use crate::tally::Tally;
use crate::window::seconds;

/// The vectors name annotations without it.
const PREFIX: &str = "autoscaling.knative.dev/";

/// Runs one scenario: all values in force, or the part of the input that is refused.
pub(crate) fn run(scenario: &Value, tally: &mut Tally) {
    let answer = answer(scenario);
    let out = scenario["out"].as_object().unwrap();
    let values = |map: &Map<String, Value>| {
        let names = out
            .keys()
            .chain(answer.keys().filter(|name| !out.contains_key(*name)));
        names
            .map(|name| map.get(name).cloned().unwrap_or(Value::Null))
            .collect::<Vec<_>>()
    };
    tally.check(&scenario["id"], &values(out), &values(&answer));
}

fn answer(scenario: &Value) -> Map<String, Value> {
    let Ok(cluster) = Cluster::default().with_entries(&entries(&scenario["config"], "")) else {
        return fields(json!({ "valid": 0, "invalid": "config" }));
    };
    let mut annotations = entries(&scenario["annotations"], PREFIX);
    // The class of all scenarios, whatever the cluster's default is.
    annotations
        .entry(format!("{PREFIX}class"))
        .or_insert_with(|| format!("kpa.{}", PREFIX.trim_end_matches('/')));
    let limit = seconds(&scenario["container_concurrency"]);
    let reachable = scenario["reachability"] != "unreachable";
    let (given, faults) = cluster.admitted(&annotations);
    if faults.is_empty() {
        return fields(resolved(&cluster.settings(&given, limit, reachable)));
    }
    fields(json!({ "valid": 0, "invalid": "annotations" }))
}

fn entries(map: &Value, prefix: &str) -> BTreeMap<String, String> {
    map.as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (format!("{prefix}{key}"), value.as_str().unwrap().to_owned()))
        .collect()
}

fn fields(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else {
        panic!("{value} is no object")
    };
    map
}

fn resolved(settings: &Settings) -> Value {
    json!({
        "valid": 1,
        "metric": settings.metric,
        "target_value": settings.target_value(),
        "total_value": settings.total_value(),
        "stable_window_ms": i64::from(settings.stable_window_s) * 1_000,
        "panic_window_ms": i64::from(settings.panic_window_s()) * 1_000,
        "panic_threshold": settings.panic_threshold(),
        "max_scale_up_rate": settings.max_scale_up_rate,
        "max_scale_down_rate": settings.max_scale_down_rate,
        "scale_down_delay_ms": i64::from(settings.scale_down_delay_s) * 1_000,
        "activation_scale": settings.activation_scale,
        "initial_scale": settings.initial_scale,
        "min_scale": settings.floor(),
        "max_scale": settings.max_scale,
        "target_burst_capacity": settings.target_burst_capacity,
        "activator_capacity": settings.activator_capacity,
        "aggregation": settings.aggregation,
        "enable_scale_to_zero": i32::from(settings.enable_scale_to_zero),
        "scale_to_zero_grace_ms": settings.scale_to_zero_grace_ms,
        "pod_retention_ms": settings.retention_ms(),
        "scraped": i32::from(settings.scraped()),
        "reachable": i32::from(settings.reachable),
    })
}

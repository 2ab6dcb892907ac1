//! Scenarios of the decider.

use dormouse_autoscaler::decider::{Decider, NoDecision, Stat};
use dormouse_autoscaler::path::Damping;
use dormouse_autoscaler::settings::{Metric, Settings};
use serde_json::{Value, json};

use crate::tally::Tally;
use crate::window::{aggregation, seconds};

/// Runs one scenario.
pub(crate) fn run(scenario: &Value, tally: &mut Tally) {
    let mut set = scenario["set"].clone();
    derived(&set, &scenario["derived"], &scenario["id"], tally);
    let mut ready = None;
    let mut decider: Option<Decider> = None;
    for event in scenario["ev"].as_array().unwrap() {
        let at = event[1].as_i64().unwrap();
        match event[0].as_str().unwrap() {
            "p" => ready = pods(&event[2]),
            "new" => {
                let made = Decider::new(at, settings(&set), ready);
                tally.check(&event[1], &from(event, 2), &panic_state(&made));
                decider = Some(made);
            }
            "r" => decider.as_mut().unwrap().record(at, &stat(event)),
            "s" => {
                let answer = tick(decider.as_mut().unwrap(), at, ready);
                tally.check(&event[1], &from(event, 2), &answer);
            }
            "c" => {
                merge(&mut set, &event[2]);
                derived(&set, &event[3], &event[1], tally);
                let decider = decider.as_mut().unwrap();
                decider.configure(settings(&set));
                decider.resize(at);
            }
            other => panic!("unknown event {other}"),
        }
    }
}

/// The fields of an event from `first` on.
pub(crate) fn from(event: &Value, first: usize) -> Vec<Value> {
    event.as_array().unwrap()[first..].to_vec()
}

/// Whether a decider is in panic mode, and its largest scale since then.
pub(crate) fn panic_state(decider: &Decider) -> Vec<Value> {
    vec![
        json!(i32::from(decider.panic_since_ms().is_some())),
        json!(decider.max_panic_pods()),
    ]
}

/// The result of one tick, in the format of the vectors.
pub(crate) fn tick(decider: &mut Decider, at: i64, ready: Option<i32>) -> Vec<Value> {
    match decider.decide(at, ready) {
        Ok(decision) => {
            assert_eq!(decision.panic_since_ms, decider.panic_since_ms());
            vec![
                json!(1),
                json!(decision.desired),
                json!(decision.excess_burst_capacity),
                json!(decision.stable),
                json!(decision.panic),
                json!(decision.panic_since_ms),
                json!(decision.max_panic_pods),
            ]
        }
        Err(NoDecision::NoData) => vec![json!(0), json!("no-data")],
        Err(NoDecision::PodsUnknown) => vec![json!(0), json!("pods")],
    }
}

/// The stat of an event.
pub(crate) fn stat(event: &Value) -> Stat {
    Stat {
        concurrency: event[2].as_f64().unwrap(),
        proxied_concurrency: event[3].as_f64().unwrap(),
        requests: event[4].as_f64().unwrap(),
        proxied_requests: event[5].as_f64().unwrap(),
    }
}

/// The number of ready pods; `None` if the lookup failed.
pub(crate) fn pods(ready: &Value) -> Option<i32> {
    match integer(ready) {
        -1 => None,
        -2 => Some(0),
        ready => Some(ready),
    }
}

/// Merges changed fields into settings.
pub(crate) fn merge(set: &mut Value, changed: &Value) {
    for (name, value) in changed.as_object().unwrap() {
        set[name] = value.clone();
    }
}

/// Compares the values derived from settings with Knative's.
pub(crate) fn derived(set: &Value, expected: &Value, at: &Value, tally: &mut Tally) {
    let settings = settings(set);
    let names = [
        ("target_value", json!(settings.target_value())),
        ("total_value", json!(settings.total_value())),
        ("panic_threshold", json!(settings.panic_threshold())),
        ("stable_window_s", json!(settings.stable_window_s)),
        ("panic_window_s", json!(settings.panic_window_s())),
        ("scraped", json!(settings.scraped())),
    ];
    let wanted: Vec<_> = names
        .iter()
        .map(|(name, _)| expected[*name].clone())
        .collect();
    let answer: Vec<_> = names.into_iter().map(|(_, value)| value).collect();
    tally.check(at, &wanted, &answer);
}

/// The settings of a scenario.
pub(crate) fn settings(set: &Value) -> Settings {
    let number = |name: &str| set[name].as_f64().unwrap();
    let count = |name: &str| integer(&set[name]);
    let ms = |name: &str| set[name].as_i64().unwrap();
    Settings {
        container_concurrency: seconds(&set["container_concurrency"]),
        metric: if set["metric"] == "rps" {
            Metric::Rps
        } else {
            Metric::Concurrency
        },
        target: set["target"].as_f64(),
        target_utilization: set["target_utilization_percentage"]
            .as_f64()
            .unwrap_or(70.0)
            / 100.0,
        stable_window_s: seconds(&set["stable_window_s"]),
        panic_window_percentage: number("panic_window_percentage"),
        panic_threshold_percentage: number("panic_threshold_percentage"),
        max_scale_up_rate: number("max_scale_up_rate"),
        max_scale_down_rate: number("max_scale_down_rate"),
        scale_down_delay_s: seconds(&set["scale_down_delay_s"]),
        activation_scale: count("activation_scale"),
        initial_scale: count("initial_scale"),
        min_scale: count("min_scale"),
        max_scale: count("max_scale"),
        target_burst_capacity: number("target_burst_capacity"),
        activator_capacity: number("activator_capacity"),
        aggregation: aggregation(set),
        enable_scale_to_zero: set["enable_scale_to_zero"].as_bool().unwrap(),
        scale_to_zero_grace_ms: ms("scale_to_zero_grace_ms"),
        pod_retention_ms: ms("pod_retention_ms"),
        progress_deadline_ms: ms("progress_deadline_ms"),
        damping: Damping::default(),
        reachable: set["reachability"] != "unreachable",
    }
}

/// A whole number.
pub(crate) fn integer(value: &Value) -> i32 {
    i32::try_from(value.as_i64().unwrap()).unwrap()
}

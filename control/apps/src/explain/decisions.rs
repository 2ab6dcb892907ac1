//! The last decisions about an app, and the meaning of their terms and reasons.

use dormouse_autoscaler::Metric;
use dormouse_fleet::Boottime;
use serde_json::{Value, json};

use super::number;
use super::settings::{least, most};
use crate::decisions::{Decisions, Entry, KEPT, Why};
use crate::record::AppRecord;

/// The decisions, the newest first, each with the values that it was made from.
pub(super) fn list(decisions: &Decisions, now: Boottime) -> Vec<Value> {
    let decisions = decisions.newest_first();
    decisions.map(|entry| decision(entry, now)).collect()
}

fn decision(entry: &Entry, now: Boottime) -> Value {
    json!({
        "ageSeconds": now.since(entry.first).as_secs(),
        "lastedSeconds": entry.last.since(entry.first).as_secs(),
        "ready": entry.ready,
        "stable": rounded(entry.stable),
        "panic": rounded(entry.panic),
        "excessBurstCapacity": entry.excess_burst_capacity,
        "wanted": entry.wanted,
        "mode": entry.mode,
        "reason": entry.why.name(),
    })
}

/// At most three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What the columns of the decisions mean, and each reason that occurs in them, with what changes it.
pub(super) fn terms(record: &AppRecord) -> Vec<Value> {
    if record.decisions.newest_first().next().is_none() {
        return Vec::new();
    }
    let term = |(name, meaning): (&str, String)| json!({"name": name, "meaning": meaning});
    let mut reasons: Vec<Why> = Vec::with_capacity(KEPT);
    for entry in record.decisions.newest_first() {
        if !reasons.contains(&entry.why) {
            reasons.push(entry.why);
        }
    }
    let reasons = reasons.into_iter();
    let reasons = reasons.map(|why| (why.name(), reason(why, record)));
    columns(record)
        .into_iter()
        .chain(reasons)
        .map(term)
        .collect()
}

fn columns(record: &AppRecord) -> Vec<(&'static str, String)> {
    let settings = &record.settings;
    let metric = match settings.metric {
        Metric::Concurrency => "requests or connections in flight",
        Metric::Rps => "requests per second",
    };
    let capacity = number(settings.total_value());
    let burst = settings.target_burst_capacity;
    let excess = if burst < 0.0 {
        "excess burst capacity; target-burst-capacity -1 keeps the activator in the path".to_owned()
    } else {
        format!(
            "excess burst capacity: READY × {capacity} - target-burst-capacity {} - PANIC; below 0 the activator stays in the path",
            number(burst)
        )
    };
    vec![
        ("READY", "ready pods".to_owned()),
        (
            "STABLE",
            format!(
                "average of {metric} over {} s (scale.window)",
                settings.stable_window_s
            ),
        ),
        (
            "PANIC",
            format!("the same over {} s", settings.panic_window_s()),
        ),
        ("EBC", excess),
        (
            "WANT",
            format!(
                "wanted pods; each is to have {} (target)",
                number(settings.target_value())
            ),
        ),
    ]
}

/// The meaning of a reason, and what changes it.
fn reason(why: Why, record: &AppRecord) -> String {
    let settings = &record.settings;
    let window = settings.stable_window_s;
    match why {
        Why::Wake => "the first packet or request; from the next tick the load decides".to_owned(),
        Why::Start => "no load is measured yet: scale.initialScale, scale.min, or the pods that ran when control started".to_owned(),
        Why::Load => "ceil(STABLE / target); changes with the load, scale.target and scale.window".to_owned(),
        Why::Panic => format!(
            "PANIC needs {} times the ready pods: no pod is removed until {window} s after that is over; changes with more ready pods (scale.min) and scale.target",
            number(settings.panic_threshold())
        ),
        Why::Min => format!("the load wants fewer; {} changes it", least(record)),
        Why::Share => "the load wants fewer; its share of the traffic keeps them, until a scale.window after that is in force".to_owned(),
        Why::Max => format!("the load wants more; {} changes it", most(record)),
        Why::Delay => "more pods were wanted a short time ago; the scale-down delay changes it".to_owned(),
        Why::Rates => "the rates at which the scale may change, or the activation scale, allow no other number".to_owned(),
        Why::Idle => format!(
            "no load for {window} s; the pod stays until all nodes forward to the activator and the grace period is over"
        ),
        Why::Sleep => format!("no load for {window} s; scale.min 1 keeps a pod, scale.window changes the time"),
    }
}

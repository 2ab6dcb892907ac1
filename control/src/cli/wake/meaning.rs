//! The explanation of a wake: what happened in each stage, and what shortens it.

use serde_json::{Value, json};

use super::timeline;

/// The stages: each with what happens in it, and what shortens it.
const STAGES: [(&str, &str, &str); 8] = [
    (
        "see",
        "the kernel of a node detected the first packet to the VIP",
        "the node's own time, well below a millisecond",
    ),
    (
        "park",
        "the activator accepted the connection and parked the request",
        "the activator's load: dormouse_parked_requests",
    ),
    (
        "decide",
        "control decided to start a pod, and read the app from the store",
        "limits of wakes (dormouse explain app NAME), or a store that is slow",
    ),
    (
        "place",
        "the scheduler chose a node, and the pod was written to the store",
        "the scheduler's load, and the disk of the store",
    ),
    (
        "wire",
        "the node got the pod, and gave it an address and a link",
        "the node's load: many pods that start at the same time",
    ),
    ("start", "the node started the process", "the node's load"),
    (
        "ready",
        "the process started to listen, and passed its readiness probe",
        "a faster start of the app, or a readiness probe without initialDelaySeconds",
    ),
    (
        "first byte",
        "the parked request was forwarded, and its response began",
        "the app's first response: connections and caches that it makes then",
    ),
];

/// The `Explanation` of a wake.
pub(in crate::cli) fn explanation(wake: &Value) -> Value {
    let stages = timeline::stages(wake);
    let lines: Vec<Value> = STAGES
        .iter()
        .map(|(name, meaning, _)| {
            let stage = stages.iter().find(|stage| stage.name == *name);
            let took = match stage.map(|stage| (stage.at_ms, stage.took_ms)) {
                Some((Some(_), Some(took))) => format!("{took:.1} ms"),
                Some((None, Some(took))) => format!("{took:.1} ms, and not over"),
                Some((Some(at), None)) => format!("until {at:.1} ms"),
                _ => "not recorded".to_owned(),
            };
            json!({"name": name, "lines": [format!("{took}: {meaning}")]})
        })
        .collect();
    let reason = wake["reason"].as_str();
    let reason = reason.map(|reason| json!({"name": "reason", "lines": [reason]}));
    let slowest = timeline::slowest(&stages);
    let advice = slowest.and_then(|slowest| {
        let (name, _, shorter) = STAGES.iter().find(|(name, ..)| *name == slowest.name)?;
        Some(json!({"name": "slowest", "lines": [format!("{name}; it depends on: {shorter}")]}))
    });
    let topics: Vec<Value> = lines.into_iter().chain(reason).chain(advice).collect();
    json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": format!("wake/{}", wake["app"].as_str().unwrap_or("?")),
        "summary": timeline::end(wake, &stages),
        "topics": topics,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_its_duration_and_its_meaning_and_the_slowest_what_shortens_it() {
        let stage = |name: &str, ms: f64| json!({"name": name, "ms": ms, "atNs": 1});
        let wake = json!({"app": "shop/web", "outcome": "timed_out", "endedMs": 90.0, "endedIn": "ready", "reason": "NotListening",
            "stages": [stage("see", 0.0), stage("park", 0.5), stage("decide", 1.0), stage("place", 80.0)]});
        let explained = explanation(&wake);
        assert_eq!(explained["subject"], "wake/shop/web");
        assert_eq!(explained["summary"], "timed out in ready after 90.0 ms");
        let line = |topic: &str| {
            let topics = explained["topics"].as_array().unwrap();
            let found = topics.iter().find(|one| one["name"] == topic).unwrap();
            found["lines"][0].as_str().unwrap().to_owned()
        };
        assert!(
            line("place").starts_with("79.0 ms: the scheduler"),
            "{}",
            line("place")
        );
        assert!(line("ready").starts_with("10.0 ms, and not over: "));
        assert!(line("wire").starts_with("not recorded: "));
        assert!(line("slowest").starts_with("place; it depends on: the scheduler"));
        assert_eq!(line("reason"), "NotListening");
    }
}

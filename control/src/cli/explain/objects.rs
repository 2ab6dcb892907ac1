//! The explanations of pods and nodes, from their objects and events.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::reasons;
use crate::api::age::age;
use crate::api::amount::with_unit;

/// Events in an explanation, the newest first.
const EVENTS_MAX: usize = 5;
/// Pods of a node that are listed by name.
const PODS_MAX: usize = 10;

/// A topic and its lines.
type Topic = (&'static str, Vec<String>);

/// The `Explanation` of a pod: its state, the reason for which it is not ready, and its process.
pub(super) fn pod(pod: &Value, events: &Value, now: Timestamp) -> Value {
    let node = text(pod, "/spec/nodeName").unwrap_or("no node yet");
    let address = text(pod, "/status/podIP");
    let address = address.map_or_else(String::new, |address| format!(", address {address}"));
    let state = pod_state(pod);
    let topics = [
        ("app", app_of(pod)),
        ("state", conditions(pod, now)),
        ("process", process(pod, now)),
        ("means", meaning(pod)),
        ("events", recent(events, now)),
    ];
    let subject = format!("pod/{}", name(pod));
    explanation(&subject, &format!("{state} on {node}{address}"), topics)
}

/// The `Explanation` of a node: its condition, and the pods that it has.
pub(super) fn node(node: &Value, pods: &Value, events: &Value, now: Timestamp) -> Value {
    let all = pods["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ready = condition(node, "Ready");
    let state = match ready.and_then(|ready| ready["status"].as_str()) {
        Some("True") => "ready",
        Some("False") => "not ready",
        _ => "unknown",
    };
    let limit = text(node, "/status/allocatable/pods").unwrap_or("?");
    let prefix = text(node, "/spec/podCIDR").unwrap_or("none");
    let summary = format!("{state}, {} of {limit} pods, prefix {prefix}", all.len());
    let cordoned = node["spec"]["unschedulable"] == true;
    let cordon = cordoned
        .then(|| "cordoned: it gets no further pods; kubectl uncordon NAME ends that".to_owned());
    let mut state = conditions(node, now);
    state.extend(cordon);
    let topics = [
        ("state", state),
        ("means", meaning(node)),
        ("has", capacity(node)),
        ("pods", not_ready(all)),
        ("events", recent(events, now)),
    ];
    explanation(&format!("node/{}", name(node)), &summary, topics)
}

/// An `Explanation`, with the topics that have lines.
fn explanation<const N: usize>(subject: &str, summary: &str, topics: [Topic; N]) -> Value {
    let topics = topics.into_iter().filter(|(_, lines)| !lines.is_empty());
    let topics: Vec<Value> = topics
        .map(|(name, lines)| json!({"name": name, "lines": lines}))
        .collect();
    json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": subject,
        "summary": summary,
        "topics": topics,
    })
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object
        .pointer(path)?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// NAMESPACE/NAME, or the name alone.
fn name(object: &Value) -> String {
    let name = text(object, "/metadata/name").unwrap_or("?");
    let namespace = text(object, "/metadata/namespace");
    namespace.map_or_else(|| name.to_owned(), |space| format!("{space}/{name}"))
}

fn pod_state(pod: &Value) -> &str {
    if text(pod, "/metadata/deletionTimestamp").is_some() {
        return "terminating";
    }
    match (text(pod, "/status/phase"), condition(pod, "Ready")) {
        (Some("Running"), Some(ready)) if ready["status"] == "True" => "ready",
        (Some("Running"), _) => "not ready",
        (Some("Failed"), _) => "failed",
        (Some("Succeeded"), _) => "ended",
        _ => "pending",
    }
}

fn app_of(pod: &Value) -> Vec<String> {
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let Some(app) = label("dormouse.dev/app") else {
        return Vec::new();
    };
    let revision = label("dormouse.dev/revision");
    let revision = revision.map_or_else(String::new, |number| format!(", revision {number}"));
    vec![format!("app {app}{revision}: dormouse explain app {app}")]
}

fn conditions_of(object: &Value) -> &[Value] {
    let all = object["status"]["conditions"].as_array();
    all.map(Vec::as_slice).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions_of(object)
        .iter()
        .find(|one| one["type"] == type_)
}

/// A line for each condition, with its age, and its reason if it does not hold.
fn conditions(object: &Value, now: Timestamp) -> Vec<String> {
    let line = |one: &Value| {
        let type_ = text(one, "/type").unwrap_or("?");
        let status = text(one, "/status").unwrap_or("?");
        let since = text(one, "/lastTransitionTime").and_then(|time| time.parse().ok());
        let since = since.map_or_else(String::new, |since| format!(" for {}", age(since, now)));
        let because = [text(one, "/reason"), text(one, "/message")];
        let because = because.into_iter().flatten();
        let because = because.fold(String::new(), |text, part| text + ": " + part);
        format!("{type_} {status}{since}{because}")
    };
    conditions_of(object).iter().map(line).collect()
}

/// The state of the pod's process, and the last lines of its output if it has ended.
fn process(pod: &Value, now: Timestamp) -> Vec<String> {
    let state = &pod["status"]["containerStatuses"][0]["state"];
    if let Some(since) = text(state, "/running/startedAt").and_then(|time| time.parse().ok()) {
        return vec![format!("runs for {}", age(since, now))];
    }
    if let Some(reason) = text(state, "/waiting/reason") {
        return vec![format!("not started yet: {reason}")];
    }
    let ended = &state["terminated"];
    let Some(code) = ended["exitCode"].as_i64() else {
        return Vec::new();
    };
    let message = text(ended, "/message").unwrap_or_default();
    let lines = message.lines().map(str::to_owned);
    [format!("ended with status {code}")]
        .into_iter()
        .chain(lines)
        .collect()
}

/// What the reason of the object's state means, and the remedy.
fn meaning(object: &Value) -> Vec<String> {
    let of_condition = |one: &&Value| one["status"] != "True" && one["reason"].is_string();
    let failed = conditions_of(object).iter().find(of_condition);
    let reason = failed.and_then(|one| one["reason"].as_str());
    let reason = text(object, "/status/reason").or(reason);
    let Some(reason) = reason.and_then(reasons::find) else {
        return Vec::new();
    };
    vec![
        format!("{}: {}", reason.name, reason.meaning),
        format!("mend: {}", reason.mend),
    ]
}

/// What a node offers to pods.
fn capacity(node: &Value) -> Vec<String> {
    let amount = |name: &str| {
        let amount = node["status"]["allocatable"][name].as_str()?;
        Some(format!("{name} {}", with_unit(amount)))
    };
    let version = text(node, "/status/nodeInfo/kubeletVersion");
    let version = version.map(|version| format!("agent {version}"));
    let parts: Vec<String> = [amount("cpu"), amount("memory"), version]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() {
        return parts;
    }
    vec![parts.join(", ")]
}

/// The pods that are not ready.
fn not_ready(pods: &[Value]) -> Vec<String> {
    let waiting = pods.iter().filter(|pod| pod_state(pod) != "ready");
    let mut lines: Vec<String> = waiting
        .map(|pod| format!("{}: {}", name(pod), pod_state(pod)))
        .collect();
    let more = lines.len().saturating_sub(PODS_MAX);
    lines.truncate(PODS_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more that are not ready")));
    lines
}

/// The newest events.
fn recent(events: &Value, now: Timestamp) -> Vec<String> {
    let all = events["items"].as_array().into_iter().flatten();
    let seen = |event: &Value| -> Option<Timestamp> {
        let time = text(event, "/lastTimestamp").or_else(|| text(event, "/eventTime"));
        time?.parse().ok()
    };
    let mut all: Vec<(Timestamp, &Value)> = all
        .filter_map(|event| Some((seen(event)?, event)))
        .collect();
    all.sort_by_key(|(seen, _)| std::cmp::Reverse(*seen));
    let line = |(seen, event): &(Timestamp, &Value)| {
        let reason = text(event, "/reason").unwrap_or("?");
        let message = text(event, "/message").unwrap_or_default();
        format!("{} ago: {reason}: {message}", age(*seen, now))
    };
    all.iter().take(EVENTS_MAX).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::explain::tests::lines;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    #[test]
    fn a_pod_that_is_not_ready_has_its_reason_the_meaning_and_the_remedy() {
        let object = json!({
            "metadata": {"name": "web-1", "namespace": "shop",
                "labels": {"dormouse.dev/app": "web", "dormouse.dev/revision": "2"}},
            "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "podIP": "fd00::1",
                "conditions": [{"type": "Ready", "status": "False", "reason": "NotListening",
                    "message": "nothing listens on port 8081; the process listens on 8080", "lastTransitionTime": "2026-01-01T00:09:55Z"}],
                "containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:09:50Z"}}}]},
        });
        let events = json!({"items": [{"reason": "NotListening", "message": "again", "lastTimestamp": "2026-01-01T00:09:00Z"}]});
        let explained = pod(&object, &events, now());
        assert_eq!(explained["subject"], "pod/shop/web-1");
        assert_eq!(explained["summary"], "not ready on node-1, address fd00::1");
        assert_eq!(
            lines(&explained, "app"),
            ["app web, revision 2: dormouse explain app web"]
        );
        let state = "Ready False for 5s: NotListening: nothing listens on port 8081; the process listens on 8080";
        assert_eq!(lines(&explained, "state"), [state]);
        assert_eq!(lines(&explained, "process"), ["runs for 10s"]);
        assert!(lines(&explained, "means")[1].contains("spec.targetPort"));
        assert_eq!(
            lines(&explained, "events"),
            ["60s ago: NotListening: again"]
        );
    }

    #[test]
    fn a_pod_that_has_ended_has_its_status_and_its_last_output() {
        let object = json!({
            "metadata": {"name": "web-1", "namespace": "shop"}, "spec": {"nodeName": "node-1"},
            "status": {"phase": "Failed", "reason": "Error",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 3, "message": "exited with status 3\nno database"}}}]},
        });
        let explained = pod(&object, &json!({}), now());
        assert_eq!(explained["summary"], "failed on node-1");
        let process = ["ended with status 3", "exited with status 3", "no database"];
        assert_eq!(lines(&explained, "process"), process);
        assert!(lines(&explained, "means")[0].starts_with("Error: "));
    }

    #[test]
    fn a_node_without_its_stream_has_the_reason_and_its_pods_that_are_not_ready() {
        let object = json!({
            "metadata": {"name": "node-1"}, "spec": {"podCIDR": "fd00:1::/96", "unschedulable": true},
            "status": {"allocatable": {"cpu": "2000m", "memory": "16571600896", "pods": "500"},
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NoFleet", "message": "no stream"}]},
        });
        let pods = json!({"items": [
            {"metadata": {"name": "a", "namespace": "shop"}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]}},
            {"metadata": {"name": "b", "namespace": "shop"}, "status": {"phase": "Pending"}},
        ]});
        let explained = node(&object, &pods, &json!({}), now());
        assert_eq!(
            explained["summary"],
            "unknown, 2 of 500 pods, prefix fd00:1::/96"
        );
        assert_eq!(lines(&explained, "has"), ["cpu 2000m, memory 15.4Gi"]);
        assert_eq!(lines(&explained, "pods"), ["shop/b: pending"]);
        assert!(lines(&explained, "means")[0].starts_with("NoFleet: "));
        assert!(lines(&explained, "state")[1].starts_with("cordoned"));
    }
}

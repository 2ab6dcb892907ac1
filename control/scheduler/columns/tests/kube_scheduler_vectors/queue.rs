//! The order of the queue, and what changes do to a rejected pod.

use dormouse_scheduler_decide::queue::{Change, Hint, Place, events, hint};
use dormouse_scheduler_decide::{Attempt, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, node, pod, profile};
use crate::replay::items;
use dormouse_vectors::Tally;

pub(crate) fn order(scenario: &Value, tally: &mut Tally) {
    let Some(wanted) = scenario.get("order") else {
        return;
    };
    let mut queue: Vec<_> = items(&scenario["input"]["queue"])
        .iter()
        .map(|entry| {
            let priority = entry["priority"].as_i64().unwrap_or(0);
            let queued_at = entry["queuedAt"].as_str().unwrap().parse().unwrap();
            let place = Place::new(i32::try_from(priority).unwrap(), queued_at);
            (place, entry["pod"].clone())
        })
        .collect();
    queue.sort_by_key(|(place, _)| *place);
    let ours: Vec<_> = queue.into_iter().map(|(_, name)| name).collect();
    tally.compare("order of the queue", &ours.into(), wanted);
}

pub(crate) fn hints(
    scenario: &Value,
    rejected: Option<&Pod>,
    attempt: &Attempt,
    cluster: &Cluster,
    tally: &mut Tally,
) {
    let Some(recorded) = scenario.get("hints") else {
        return;
    };
    let input = &scenario["input"];
    let profile = profile(input);
    let rejectors = &attempt.unschedulable_plugins;
    let mut ours = Vec::new();
    for (index, change) in items(&input["events"]).iter().enumerate() {
        let of = |name: &str| change.get(name);
        let pods = (of("oldPod").map(pod), of("newPod").map(pod));
        let nodes = (of("oldNode").map(node), of("newNode").map(node));
        let change = if pods.0.is_some() || pods.1.is_some() {
            Change::Pod {
                old: pods.0.as_ref(),
                new: pods.1.as_ref(),
            }
        } else {
            Change::Node {
                old: nodes.0.as_ref(),
                new: nodes.1.as_ref(),
            }
        };
        for event in events(change) {
            let of = (&profile, &cluster.snapshot);
            let answer = match hint(of, rejected.unwrap(), rejectors, event, change) {
                Hint::Skip => "Skip",
                Hint::QueueAfterBackoff => "QueueAfterBackoff",
            };
            ours.push(json!({"change": index, "event": event.to_string(), "result": answer}));
        }
    }
    let wanted = items(recorded).iter().map(
        |one| json!({"change": one["change"], "event": one["event"], "result": one["result"]}),
    );
    let wanted: Vec<Value> = wanted.collect();
    tally.compare("number of hints", &ours.len().into(), &wanted.len().into());
    for (ours, wanted) in ours.iter().zip(&wanted) {
        tally.compare("hint", ours, wanted);
    }
}

//! Replays a scenario: attempts one after another, each with the effect that was recorded.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::{Pod, Scheduler};
use serde_json::Value;

use crate::cluster::{Cluster, pod, profile};
use crate::compare::compare;
use crate::{Tallies, indexed, parts, queue};

pub(crate) fn replay(scenario: &Value, tallies: &mut Tallies) {
    let input = &scenario["input"];
    let mut cluster = Cluster::new(input);
    let mut scheduler = Scheduler::new(profile(input));
    let mut waiting: BTreeMap<String, Pod> = BTreeMap::new();
    for value in items(&input["schedule"]) {
        let pod = pod(value);
        waiting.insert(pod.key().to_string(), pod);
    }
    if let Some(order) = scenario.get("nodeOrder") {
        cluster.refresh();
        let ours = serde_json::to_value(cluster.snapshot.node_order()).unwrap();
        tallies.whole.compare("order of nodes", &ours, order);
    }
    let mut attempt = None;
    let mut at = 0;
    for step in items(&scenario["steps"]) {
        let key = step["pod"].as_str().unwrap();
        if step["attempt"] == 1 {
            for change in items(&input["changes"]) {
                if change["before"] == at {
                    cluster.change(change);
                }
            }
            at += 1;
        }
        cluster.refresh();
        let pod = waiting[key].clone();
        let ours = scheduler.attempt(&cluster.snapshot, &pod);
        compare(step, &ours, &cluster.snapshot, &pod, &mut tallies.whole);
        parts::compare(&scheduler, &ours, &cluster, &pod, &mut tallies.in_parts);
        indexed::compare(&ours, &mut cluster, &pod, &mut tallies.indexed);
        let after = apply(&step["effect"], pod, &mut cluster);
        waiting.insert(key.to_owned(), after);
        attempt = Some(ours);
    }
    queue::order(scenario, &mut tallies.whole);
    if let Some(attempt) = attempt {
        let last = waiting.values().next().filter(|_| waiting.len() == 1);
        queue::hints(scenario, last, &attempt, &cluster, &mut tallies.whole);
    }
}

pub(crate) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Applies the effect that was recorded; the pod as it is then.
fn apply(effect: &Value, pod: Pod, cluster: &mut Cluster) -> Pod {
    let node = effect["node"].as_str().unwrap_or_default();
    match effect["kind"].as_str().unwrap() {
        "bind" => {
            let start = effect["startTime"].as_str().unwrap().parse().unwrap();
            let bound = pod.bound(node, Some(start));
            cluster.set_pod(&bound);
            bound
        }
        "preempt" => {
            for key in items(&effect["evicted"]) {
                cluster.remove_pod(key.as_str().unwrap());
            }
            for key in items(&effect["clearedNominations"]) {
                cluster.clear_nomination(key.as_str().unwrap());
            }
            let nominated = pod.nominated(node);
            cluster.set_pod(&nominated);
            nominated
        }
        "clearNomination" => {
            let cleared = pod.nominated("");
            cluster.set_pod(&cleared);
            cleared
        }
        "none" => {
            cluster.set_pod(&pod);
            pod
        }
        kind => panic!("unknown effect {kind}"),
    }
}

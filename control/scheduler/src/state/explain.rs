//! The explanation of a pod: where it waits, why nodes cannot have it, and the scores of the best nodes.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::{
    Attempt as Found, Outcome as End, Pod, PodKey, Preemption, Profile, Scheduler, Scores,
    Snapshot, Status,
};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::State;
use crate::queue::Lane;

/// Nodes whose scores are listed.
const NODES_MAX: usize = 5;
/// Nodes that are named as examples of one reason.
const EXAMPLES_MAX: usize = 3;

/// A part of an explanation.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub lines: Vec<String>,
}

/// What an explanation is made of: a copy of the cluster, since a look at each node takes longer than many decisions.
#[derive(Debug)]
pub struct Explanation {
    cluster: Snapshot,
    profile: Option<Profile>,
    /// Without its node: a pod that is on a node would not fit beside itself.
    pod: Pod,
    /// Where it waits, in lines.
    place: Vec<String>,
    /// Its node; empty without one.
    node: String,
}

impl State {
    /// What the explanation of a pod is made of; `None` for a pod that is not known.
    pub fn explanation(&self, now: Timestamp, key: &PodKey) -> Option<Explanation> {
        let known = &self.pods.get(key)?.pod;
        let assumed = self.assumed.get(key).map(|assumed| &assumed.pod);
        let node = assumed.unwrap_or(known).node_name().to_owned();
        let pending = self.pending.get(key);
        let scheduler = pending.map_or(self.profiles.any(), |api| super::pods::scheduler_of(api));
        let pod = Pod::clone(known);
        Some(Explanation {
            cluster: self.decider.snapshot().clone(),
            profile: self.profiles.get(scheduler).cloned(),
            pod: if node.is_empty() {
                pod
            } else {
                pod.bound("", None)
            },
            place: self.lines_of(now, key, &node),
            node,
        })
    }

    /// Where a pod waits, and what its last decision lacked.
    fn lines_of(&self, now: Timestamp, key: &PodKey, node: &str) -> Vec<String> {
        let missing = self.inexact.get(key).map(|missing| {
            format!("the last decision was made without {missing} shards, which had not answered in time (--straggler-timeout): it is inexact")
        });
        let place = self.place_of(now, key, node);
        std::iter::once(place).chain(missing).collect()
    }

    fn place_of(&self, now: Timestamp, key: &PodKey, node: &str) -> String {
        if !node.is_empty() {
            return format!("on {node}; below, the decision as it would be now without the pod");
        }
        let Some((lane, attempted, rejectors)) = self.queue.find(key) else {
            return "not in the queue".to_owned();
        };
        let place = match lane {
            None => "being decided on",
            Some(Lane::Active) => "next in the queue",
            Some(Lane::Backoff) => "tried again after its backoff",
            Some(Lane::Unschedulable) => "waits for a change of the cluster that may help",
            Some(Lane::Gated) => "waits for its scheduling gates to be removed",
        };
        let since = attempted.first_at.map(|first| {
            let seconds = now.duration_since(first).as_secs();
            format!(", the first {seconds}s ago")
        });
        let rejectors: Vec<_> = rejectors.iter().map(ToString::to_string).collect();
        let rejected = match rejectors.as_slice() {
            [] => String::new(),
            names => format!(", rejected by {}", names.join(", ")),
        };
        let (attempts, since) = (attempted.attempts, since.unwrap_or_default());
        format!("{place}; attempts: {attempts}{since}{rejected}")
    }
}

impl Explanation {
    /// Explains the pod: as it would be decided on at the time of the copy.
    pub fn topics(mut self) -> Vec<Topic> {
        self.cluster.remove_pod(self.pod.key());
        self.cluster.refresh();
        let mut topics = vec![Topic {
            name: "scheduler",
            lines: self.place,
        }];
        if let Some(profile) = self.profile {
            let found = Scheduler::new(profile).attempt(&self.cluster, &self.pod);
            topics.extend(topics_of(&found, &self.node));
        }
        topics
    }
}

fn topics_of(found: &Found, node: &str) -> Vec<Topic> {
    let verdict = match &found.outcome {
        End::Gated(status) => status.message(),
        End::Unschedulable(message) => message.clone(),
        End::Error(error) => format!("the attempt fails: {error}"),
        End::Placed => format!(
            "{} of the best nodes: {}",
            found.best().len(),
            found.best().join(", ")
        ),
    };
    let all = [
        ("decision", vec![verdict]),
        ("filtered", filtered(found)),
        ("scores", scores(found, node)),
        (
            "preemption",
            found.preemption.iter().flat_map(preemption).collect(),
        ),
    ];
    let topics = all.into_iter().map(|(name, lines)| Topic { name, lines });
    topics.filter(|topic| !topic.lines.is_empty()).collect()
}

/// Each reason with its plugin, the number of nodes, and some of them.
fn filtered(found: &Found) -> Vec<String> {
    let mut classes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, status) in &found.rejected {
        classes.entry(reason(status)).or_default().push(node);
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let mut lines: Vec<_> = classes
        .iter()
        .map(|(reason, nodes)| class(reason, nodes))
        .collect();
    lines.extend(
        found
            .absent
            .iter()
            .map(|status| format!("the other nodes: {}", reason(status))),
    );
    lines.extend(
        found
            .pre_filter
            .iter()
            .map(|status| format!("all nodes: {}", reason(status))),
    );
    lines
}

fn class(reason: &str, nodes: &[&str]) -> String {
    let examples = &nodes[..nodes.len().min(EXAMPLES_MAX)];
    let more = if nodes.len() > examples.len() {
        ", …"
    } else {
        ""
    };
    format!(
        "{} nodes: {reason} ({}{more})",
        nodes.len(),
        examples.join(", ")
    )
}

fn reason(status: &Status) -> String {
    let message = status.message();
    match status.plugin {
        Some(plugin) => format!("{plugin}: {message}"),
        None => message,
    }
}

/// The weighted scores of the best nodes, as a table; `*` is the pod's node.
fn scores(found: &Found, node: &str) -> Vec<String> {
    let Some(scores) = &found.scores else {
        let only = found.feasible.first();
        return only
            .map(|only| format!("{only} alone passes: nothing is scored"))
            .into_iter()
            .collect();
    };
    let mut order: Vec<usize> = (0..found.feasible.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(scores.total[at]));
    let here = order.iter().position(|&at| found.feasible[at] == node);
    let here = here
        .filter(|&place| place >= NODES_MAX)
        .map(|place| order[place]);
    order.truncate(NODES_MAX);
    order.extend(here);
    let row = |at: usize| {
        let mark = if found.feasible[at] == node { "*" } else { "" };
        let name = format!("{}{mark}", found.feasible[at]);
        let weighted = scores.plugins.iter().map(|one| one.weighted[at]);
        let numbers = std::iter::once(scores.total[at]).chain(weighted);
        std::iter::once(name)
            .chain(numbers.map(|number| number.to_string()))
            .collect()
    };
    let rows = std::iter::once(headings(scores)).chain(order.into_iter().map(row));
    aligned(&rows.collect::<Vec<_>>())
}

fn headings(scores: &Scores) -> Vec<String> {
    let plugins = scores.plugins.iter().map(|one| match one.weight {
        1 => one.plugin.to_string(),
        weight => format!("{}×{weight}", one.plugin),
    });
    ["NODE", "TOTAL"]
        .map(str::to_owned)
        .into_iter()
        .chain(plugins)
        .collect()
}

/// Rows with columns of equal width.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let len = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..len).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn preemption(preemption: &Preemption) -> Vec<String> {
    let candidates = preemption.candidates.iter().take(NODES_MAX).map(|one| {
        let victims: Vec<_> = one.victims.iter().map(ToString::to_string).collect();
        format!("{}: evicts {}", one.node, victims.join(", "))
    });
    let message = preemption.message.iter().chain(&preemption.error).cloned();
    message.chain(candidates).collect()
}

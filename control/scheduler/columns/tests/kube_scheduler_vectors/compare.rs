//! Ours beside a recorded step.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::{
    Attempt, Candidate, Nomination, Outcome, Pod, Preemption, Snapshot, Status,
};
use serde_json::{Map, Value, json};

use crate::replay::items;
use dormouse_vectors::Tally;

pub(crate) fn compare(
    step: &Value,
    ours: &Attempt,
    snapshot: &Snapshot,
    pod: &Pod,
    tally: &mut Tally,
) {
    let id = format!("{} attempt {}", step["pod"], step["attempt"]);
    let mut check = |what: &str, ours: Value, wanted: Value| {
        tally.compare(&format!("{id}: {what}"), &ours, &wanted);
    };
    let (result, message) = outcome(&ours.outcome);
    check("result", result.into(), step["result"].clone());
    if let Outcome::Gated(status) = &ours.outcome {
        check("preEnqueue", verdict(status), step["preEnqueue"].clone());
        return;
    }
    check("message", message, step["message"].clone());
    check(
        "preFilter",
        pre_filter(ours),
        without_skip(&step["preFilter"]),
    );
    let names = |list: &Value| items(list).to_vec();
    check(
        "feasible",
        sorted(&ours.feasible),
        names(&step["feasible"]).into(),
    );
    check("filter", filter(ours), by_node(&step["filter"]));
    let is_only = step["nominatedOnly"] == true;
    check(
        "nominatedOnly",
        ours.is_nominated_only.into(),
        is_only.into(),
    );
    if let Some(window) = step.get("window") {
        let is_narrowed = ours.nodes.is_some();
        check(
            "window",
            self::window(ours, is_narrowed),
            recorded_window(window, is_narrowed),
        );
    }
    let best: Vec<String> = ours.best().into_iter().map(str::to_owned).collect();
    check("best", sorted(&best), names(&step["best"]).into());
    if let Some(suggested) = step.get("suggested") {
        check("suggested", ours.first_of_heap().into(), suggested.clone());
    }
    compare_scores(&scores(ours), &step["scores"], &mut check);
    check(
        "unschedulablePlugins",
        plugins(ours),
        names(&step["unschedulablePlugins"]).into(),
    );
    check(
        "preemption",
        preemption(ours.preemption.as_ref()),
        recorded(step),
    );
    check("effect", effect(ours, snapshot, pod), kind(&step["effect"]));
}

/// Each column of each plugin, and the sum.
fn compare_scores(ours: &Value, recorded: &Value, check: &mut impl FnMut(&str, Value, Value)) {
    check("plugins that scored", names_of(ours), names_of(recorded));
    for (plugin, recorded) in recorded["plugins"].as_object().into_iter().flatten() {
        let ours = &ours["plugins"][plugin];
        for column in ["weight", "raw", "score"] {
            let what = format!("{column} of {plugin}");
            check(&what, ours[column].clone(), recorded[column].clone());
        }
    }
    check("total", ours["total"].clone(), recorded["total"].clone());
}

pub(crate) fn outcome(outcome: &Outcome) -> (&'static str, Value) {
    match outcome {
        Outcome::Gated(_) => ("Gated", Value::Null),
        Outcome::Placed => ("Scheduled", Value::Null),
        Outcome::Unschedulable(message) => ("Unschedulable", message.as_str().into()),
        Outcome::Error(message) => ("Error", message.as_str().into()),
    }
}

pub(crate) fn verdict(status: &Status) -> Value {
    let mut reasons = status.reasons.clone();
    reasons.sort();
    let mut all = Map::new();
    if let Some(plugin) = status.plugin {
        all.insert("plugin".to_owned(), plugin.to_string().into());
    }
    all.insert("code".to_owned(), status.code.to_string().into());
    all.insert("reasons".to_owned(), reasons.into());
    all.into()
}

fn pre_filter(ours: &Attempt) -> Value {
    let mut all = match &ours.pre_filter {
        Some(status) => verdict(status),
        None => json!({}),
    };
    if let Some(names) = &ours.nodes {
        all["nodes"] = names.iter().cloned().collect();
    }
    all
}

fn without_skip(recorded: &Value) -> Value {
    let mut all = recorded.clone();
    all.as_object_mut().unwrap().remove("skip");
    all
}

pub(crate) fn sorted(names: &[String]) -> Value {
    let mut names = names.to_vec();
    names.sort();
    names.into()
}

pub(crate) fn filter(ours: &Attempt) -> Value {
    let all = ours.rejected.iter();
    let all: Map<_, _> = all
        .map(|(node, status)| (node.clone(), verdict(status)))
        .collect();
    all.into()
}

/// Recorded verdicts by node.
fn by_node(list: &Value) -> Value {
    let mut all = Map::new();
    for entry in items(list) {
        let mut entry = entry.clone();
        let node = entry.as_object_mut().unwrap().remove("node").unwrap();
        all.insert(node.as_str().unwrap().to_owned(), entry);
    }
    all.into()
}

/// The recorded limit is that of all nodes, which is not the one for those that PreFilter left.
fn window(ours: &Attempt, is_narrowed: bool) -> Value {
    let window = ours.window;
    let limit = (!is_narrowed).then_some(window.limit);
    json!({"start": window.start, "limit": limit, "visited": window.visited, "next": window.next})
}

fn recorded_window(recorded: &Value, is_narrowed: bool) -> Value {
    let mut window = recorded.clone();
    if is_narrowed {
        window["limit"] = Value::Null;
    }
    window
}

/// Columns over the feasible nodes by name, as they are recorded.
pub(crate) fn scores(ours: &Attempt) -> Value {
    let Some(scores) = &ours.scores else {
        return Value::Null;
    };
    let column = |values: &[i64]| -> Value {
        let by_name: BTreeMap<_, _> = ours.feasible.iter().zip(values).collect();
        by_name.into_values().copied().collect()
    };
    let mut plugins = Map::new();
    for one in &scores.plugins {
        let value =
            json!({"weight": one.weight, "raw": column(&one.raw), "score": column(&one.weighted)});
        plugins.insert(one.plugin.to_string(), value);
    }
    json!({"plugins": plugins, "total": column(&scores.total)})
}

/// The names of the plugins that scored.
fn names_of(scores: &Value) -> Value {
    let plugins = scores["plugins"].as_object().into_iter().flatten();
    plugins.map(|(name, _)| name.as_str()).collect()
}

pub(crate) fn plugins(ours: &Attempt) -> Value {
    let names = ours.unschedulable_plugins.iter().map(ToString::to_string);
    sorted(&names.collect::<Vec<_>>())
}

pub(crate) fn preemption(ours: Option<&Preemption>) -> Value {
    let Some(ours) = ours else {
        return Value::Null;
    };
    let candidates = ours.candidates.iter();
    let candidates: Map<_, _> = candidates.map(|one| candidate(one)).collect();
    let best = ours.best().into_iter();
    let best: Vec<_> = best.map(|one| one.node.as_str()).collect();
    let rejected = ours.rejected.iter();
    let rejected: Map<_, _> = rejected
        .map(|(node, status)| (node.clone(), verdict(status)))
        .collect();
    json!({"eligible": ours.ineligible.is_none(), "reason": ours.ineligible, "candidates": candidates,
        "rejected": rejected, "best": best})
}

fn candidate(one: &Candidate) -> (String, Value) {
    let victims: Vec<_> = one.victims.iter().map(ToString::to_string).collect();
    let value = json!({"victims": victims, "pdbViolations": one.budget_violations,
        "highestPriority": one.highest_priority, "prioritySum": one.priority_sum,
        "earliestStart": one.earliest_start.map(|time| time.to_string())});
    (one.node.clone(), value)
}

fn recorded(step: &Value) -> Value {
    let Some(recorded) = step.get("preemption") else {
        return Value::Null;
    };
    json!({"eligible": recorded["eligible"], "reason": recorded["reason"],
        "candidates": by_node(&recorded["candidates"]), "rejected": by_node(&recorded["rejected"]),
        "best": items(&recorded["best"])})
}

/// The kind of the effect, and the nominations that it clears.
fn kind(effect: &Value) -> Value {
    json!([effect["kind"], items(&effect["clearedNominations"])])
}

fn effect(ours: &Attempt, snapshot: &Snapshot, pod: &Pod) -> Value {
    let is_nominated = !pod.nominated_node().is_empty();
    match (&ours.outcome, ours.nomination) {
        (Outcome::Placed, _) => json!(["bind", []]),
        (_, Nomination::ToVictims) => {
            let node = &ours.preemption.as_ref().unwrap().chosen().unwrap().node;
            let cleared = Preemption::cleared_nominations(snapshot, pod, node);
            let cleared: Vec<_> = cleared.iter().map(ToString::to_string).collect();
            json!(["preempt", cleared])
        }
        (_, Nomination::Clear) if is_nominated => json!(["clearNomination", []]),
        _ => json!(["none", []]),
    }
}

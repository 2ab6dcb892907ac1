//! A reference of a plugin, and its comparison with an attempt.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{Attempt, Code, Plugin, Profile, Scheduler};
use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, name};
use crate::image_locality::ImageLocality;

pub(crate) const SCORE_MAX: i64 = 100;

/// A slow implementation of one plugin.
pub(crate) trait Reference {
    fn plugin(&self) -> Plugin;

    /// The verdict by which the pod has no chance on any node.
    fn rejects(&self, _cluster: &Cluster, _pod: &Pod) -> Option<Code> {
        None
    }

    /// The names of the only nodes that are looked at; `None` for all.
    fn names(&self, _pod: &Pod) -> Option<BTreeSet<String>> {
        None
    }

    /// The verdict against a node.
    fn filter(&self, _cluster: &Cluster, _pod: &Pod, _node: &Node) -> Option<Code> {
        None
    }

    /// The scores of the feasible nodes; `None` if the plugin does not score this pod.
    fn score(&self, _cluster: &Cluster, _pod: &Pod, _feasible: &[&Node]) -> Option<Column> {
        None
    }
}

/// One plugin's scores of the feasible nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) raw: Vec<i64>,
    /// From 0 to 100.
    pub(crate) normalised: Vec<i64>,
}

impl Column {
    /// Scores that are from 0 to 100 already.
    pub(crate) fn plain(raw: Vec<i64>) -> Self {
        let normalised = raw.clone();
        Self { raw, normalised }
    }

    /// Scores in proportion to the largest one; reversed, the largest becomes the smallest.
    pub(crate) fn proportional(raw: Vec<i64>, is_reversed: bool) -> Self {
        let max = raw.iter().copied().max().unwrap_or(0);
        let share = |one: &i64| if max == 0 { 0 } else { one * SCORE_MAX / max };
        let turned = |share| {
            if is_reversed {
                SCORE_MAX - share
            } else {
                share
            }
        };
        let normalised = raw.iter().map(share).map(turned).collect();
        Self { raw, normalised }
    }
}

/// Without a plugin for a node that was excluded before the filters.
type Verdict = (Option<Plugin>, Code);

/// What an attempt found, by the names of nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    verdicts: BTreeMap<String, Option<Verdict>>,
    /// For each plugin that scored, a node's raw and weighted score.
    scores: BTreeMap<Plugin, BTreeMap<String, (i64, i64)>>,
    total: BTreeMap<String, i64>,
}

/// Compares an attempt with one plugin with the reference. ImageLocality is there as well: without a plugin that scores, one
/// feasible node is enough.
pub(crate) fn check(
    reference: &dyn Reference,
    args: &Value,
    cluster: &Cluster,
    pod: &Pod,
) -> Result<(), TestCaseError> {
    let mut references = vec![(reference, 1)];
    if reference.plugin() != Plugin::ImageLocality {
        references.push((&ImageLocality, 1));
    }
    let profile = only(&references, args);
    check_all(&references, profile, cluster, pod)
}

/// The profile with some plugins only, and the arguments of the first.
pub(crate) fn only(references: &[(&dyn Reference, i64)], args: &Value) -> Profile {
    let enabled = references.iter();
    let enabled =
        enabled.map(|(one, weight)| json!({"name": one.plugin().to_string(), "weight": weight}));
    let mut profile = json!({"plugins": {"multiPoint": {
        "disabled": [{"name": "*"}], "enabled": enabled.collect::<Vec<_>>()}}});
    if !args.is_null() {
        let name = references[0].0.plugin().to_string();
        profile["pluginConfig"] = json!([{"name": name, "args": args}]);
    }
    Profile::parse(&profile).unwrap()
}

/// Compares an attempt with some plugins, which have weights, with the references, in the order of the profile.
pub(crate) fn check_all(
    references: &[(&dyn Reference, i64)],
    profile: Profile,
    cluster: &Cluster,
    pod: &Pod,
) -> Result<(), TestCaseError> {
    let incoming = dormouse_scheduler_decide::Pod::parse(pod).unwrap();
    let attempt = Scheduler::new(profile).attempt(&cluster.snapshot(), &incoming);
    prop_assert_eq!(found(&attempt, cluster), expected(references, cluster, pod));
    Ok(())
}

fn found(attempt: &Attempt, cluster: &Cluster) -> Found {
    let verdict = |node: &Node| {
        if attempt.feasible.iter().any(|one| one == name(node)) {
            return None;
        }
        let rejected = attempt.rejected.get(name(node));
        let status = rejected
            .or(attempt.pre_filter.as_ref())
            .or(attempt.absent.as_ref());
        let status = status.unwrap_or_else(|| panic!("no verdict of {}: {attempt:?}", name(node)));
        Some((status.plugin, status.code))
    };
    let names = || attempt.feasible.iter().cloned();
    let columns = attempt.scores.iter().flat_map(|scores| &scores.plugins);
    let column = |one: &dormouse_scheduler_decide::PluginScores| {
        names()
            .zip(one.raw.iter().copied().zip(one.weighted.iter().copied()))
            .collect()
    };
    let total = attempt
        .scores
        .iter()
        .flat_map(|scores| &scores.total)
        .copied();
    Found {
        verdicts: cluster
            .nodes
            .iter()
            .map(|node| (name(node).to_owned(), verdict(node)))
            .collect(),
        scores: columns.map(|one| (one.plugin, column(one))).collect(),
        total: names().zip(total).collect(),
    }
}

fn expected(references: &[(&dyn Reference, i64)], cluster: &Cluster, pod: &Pod) -> Found {
    let verdicts: BTreeMap<_, _> = cluster
        .nodes
        .iter()
        .map(|node| {
            (
                name(node).to_owned(),
                verdict(references, cluster, pod, node),
            )
        })
        .collect();
    let is_feasible = |node: &&Node| verdicts[name(node)].is_none();
    let feasible: Vec<&Node> = cluster.nodes.iter().filter(is_feasible).collect();
    let mut scores = BTreeMap::new();
    let mut total = BTreeMap::new();
    // One feasible node is taken without scores.
    if feasible.len() > 1 {
        for node in &feasible {
            total.insert(name(node).to_owned(), 0);
        }
        for (reference, weight) in references {
            let Some(column) = reference.score(cluster, pod, &feasible) else {
                continue;
            };
            let weighted = column.normalised.iter().map(|one| one * weight);
            let names = feasible.iter().map(|node| name(node).to_owned());
            let column: BTreeMap<_, _> = names.zip(column.raw.into_iter().zip(weighted)).collect();
            for (name, (_, weighted)) in &column {
                *total.get_mut(name).unwrap() += weighted;
            }
            scores.insert(reference.plugin(), column);
        }
    }
    Found {
        verdicts,
        scores,
        total,
    }
}

fn verdict(
    references: &[(&dyn Reference, i64)],
    cluster: &Cluster,
    pod: &Pod,
    node: &Node,
) -> Option<Verdict> {
    for (reference, _) in references {
        if let Some(code) = reference.rejects(cluster, pod) {
            return Some((Some(reference.plugin()), code));
        }
    }
    for (reference, _) in references {
        if reference
            .names(pod)
            .is_some_and(|names| !names.contains(name(node)))
        {
            return Some((None, Code::UnschedulableAndUnresolvable));
        }
    }
    references.iter().find_map(|(reference, _)| {
        let code = reference.filter(cluster, pod, node)?;
        Some((Some(reference.plugin()), code))
    })
}

//! Scores of feasible nodes: each plugin's, normalized and weighed, and their sum.

use std::collections::BTreeSet;

use super::PluginScores;
use super::exchange::{Ranges, Survey};
use crate::node_state::NodeState;
use crate::plugins::normalize::SCORE_MAX;
use crate::plugins::{self, Cycle};
use crate::profile::Profile;
use crate::status::Plugin;

/// The plugins that take part in scoring: ImageLocality has no PreScore.
fn scoring(profile: &Profile) -> impl Iterator<Item = Plugin> {
    let with_pre_score = profile.pre_score.iter().copied();
    with_pre_score.chain([Plugin::ImageLocality])
}

/// Counts for the scores over all nodes. An error fails the attempt.
pub(super) fn survey(cycle: Cycle<'_>, feasible: &[&NodeState]) -> Result<Survey, String> {
    let mut survey = Survey {
        nodes_len: cycle.snapshot.nodes_len(),
        ..Survey::default()
    };
    for plugin in scoring(cycle.profile) {
        plugins::survey(plugin, cycle, feasible, &mut survey).map_err(|error| {
            let plugin = plugin.to_string();
            format!("running PreScore plugin {plugin:?}: {error}")
        })?;
    }
    Ok(survey)
}

/// Scores all nodes with each plugin, not yet normalized; with each node, whether its score is outside of the range.
pub(super) fn score(
    cycle: Cycle<'_>,
    survey: &Survey,
    nodes: &[&NodeState],
) -> Vec<(PluginScores, Vec<bool>)> {
    let scoring: BTreeSet<_> = scoring(cycle.profile).collect();
    let score = cycle.profile.score.iter();
    let score = score.filter(|(plugin, _)| scoring.contains(plugin));
    let scored = score.filter_map(|&(plugin, weight)| {
        let scorer = plugins::scorer(plugin, cycle, survey)?;
        let raw: Vec<i64> = nodes.iter().map(|node| scorer.score(node)).collect();
        let ignored = nodes.iter().map(|node| scorer.ignores(node)).collect();
        let weighted = raw.clone();
        let one = PluginScores {
            plugin,
            weight,
            raw,
            weighted,
        };
        Some((one, ignored))
    });
    scored.collect()
}

/// The range of each plugin's scores.
pub(super) fn ranges(scores: &[PluginScores], ignored: &[Vec<bool>]) -> Ranges {
    let range = |(one, ignored): (&PluginScores, &Vec<bool>)| {
        let counted = || {
            let all = one.raw.iter().zip(ignored);
            all.filter(|(_, is_ignored)| !**is_ignored)
                .map(|(score, _)| *score)
        };
        Some((one.plugin, (counted().min()?, counted().max()?)))
    };
    Ranges(scores.iter().zip(ignored).filter_map(range).collect())
}

/// Brings each plugin's scores into the range from 0 to 100.
pub(super) fn normalize(scores: &mut [PluginScores], ignored: &[Vec<bool>], ranges: &Ranges) {
    for (one, ignored) in scores.iter_mut().zip(ignored) {
        let range = ranges.0.get(&one.plugin).copied();
        for ((to, raw), is_ignored) in one.weighted.iter_mut().zip(&one.raw).zip(ignored) {
            *to = match range {
                Some(range) if !is_ignored => plugins::normalized(one.plugin, *raw, range),
                _ => 0,
            };
        }
    }
}

/// Multiplies with weights and sums up. A score outside its range is an error: that of the first such node.
pub(super) fn weigh(scores: &mut [PluginScores], nodes_len: usize) -> Result<Vec<i64>, String> {
    let mut totals = vec![0; nodes_len];
    for (at, total) in totals.iter_mut().enumerate() {
        for one in &mut *scores {
            let score = one.weighted[at];
            if !(0..=SCORE_MAX).contains(&score) {
                let plugin = one.plugin.to_string();
                return Err(format!(
                    "applying score defaultWeights on Score plugins: plugin {plugin:?} returns an invalid score {score}, it should in the range of [0, {SCORE_MAX}] after normalizing"
                ));
            }
            one.weighted[at] = score * one.weight;
            *total += one.weighted[at];
        }
    }
    Ok(totals)
}

//! Scores of feasible nodes: each plugin's, normalized and weighed, and their sum.

use std::collections::BTreeMap;

use super::{PluginScores, Scores};
use crate::node_state::NodeState;
use crate::plugins::normalize::SCORE_MAX;
use crate::plugins::{self, Cycle, Scorer};
use crate::status::Plugin;

/// Scores all nodes. An error fails the attempt.
pub(super) fn score(cycle: Cycle<'_>, feasible: &[&NodeState]) -> Result<Scores, String> {
    let mut by_plugin: BTreeMap<Plugin, Box<dyn Scorer + '_>> = BTreeMap::new();
    let without_pre_score = Plugin::ImageLocality;
    for &plugin in cycle.profile.pre_score.iter().chain([&without_pre_score]) {
        let scorer = plugins::scorer(plugin, cycle, feasible).map_err(|error| {
            let plugin = plugin.to_string();
            format!("running PreScore plugin {plugin:?}: {error}")
        })?;
        if let Some(scorer) = scorer {
            by_plugin.insert(plugin, scorer);
        }
    }
    let mut scores = Scores {
        plugins: Vec::new(),
        total: vec![0; feasible.len()],
    };
    for &(plugin, weight) in &cycle.profile.score {
        if let Some(scorer) = by_plugin.get(&plugin) {
            let raw: Vec<i64> = feasible.iter().map(|node| scorer.score(node)).collect();
            let mut weighted = raw.clone();
            scorer.normalize(&mut weighted);
            scores.plugins.push(PluginScores {
                plugin,
                weight,
                raw,
                weighted,
            });
        }
    }
    weigh(&mut scores)?;
    Ok(scores)
}

/// Multiplies with weights and sums up. A score outside its range is an error: that of the first such node.
fn weigh(scores: &mut Scores) -> Result<(), String> {
    for (at, total) in scores.total.iter_mut().enumerate() {
        for one in &mut scores.plugins {
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
    Ok(())
}

//! A node under load that fills its tables. Each group of rows builds hosts of its own.
//!
//! What is compared is measured in turns, and ratios are taken within a turn.

mod apps;
mod connections;
mod forged_neighbors;
mod full_table;
mod mutated;
mod node;
mod node_port;
mod scan;
mod scanner;
mod under_flood;

use anyhow::Result;

use super::Options;
use crate::report::Report;

/// Prefix of the hosts' names.
const PREFIX: &str = "bflood";
/// Turns of a measurement, the first of which is not counted: programs and caches are cold.
const TURNS: u16 = 6;

/// All groups of rows, by name.
pub(super) const GROUPS: &[&str] = &[FORGED_NEIGHBORS, FULL_TABLE, MUTATED, NODE_PORT, SCAN];
const FORGED_NEIGHBORS: &str = "forged-neighbors";
const FULL_TABLE: &str = "full-table";
/// A run without groups leaves it out: it takes longer than all others.
const MUTATED: &str = "mutated";
const NODE_PORT: &str = "node-port";
const SCAN: &str = "scan";

/// Measures the groups of rows in `options`.
pub(super) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("flood");
    if options.runs(FORGED_NEIGHBORS) {
        forged_neighbors::measure(options, &mut report)?;
    }
    if options.runs(FULL_TABLE) {
        full_table::measure(options, &mut report)?;
    }
    if options.groups.iter().any(|name| name == MUTATED) {
        mutated::measure(&mut report)?;
    }
    if options.runs(NODE_PORT) {
        node_port::measure(options, &mut report)?;
    }
    if options.runs(SCAN) {
        scan::measure(options, &mut report)?;
        under_flood::measure(options, &mut report)?;
    }
    Ok(report)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

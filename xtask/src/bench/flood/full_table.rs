//! Connections through a flow table that is full, and through one that is not.

use std::time::Duration;

use anyhow::{Result, bail};

use super::super::Options;
use super::super::dataplane::Bench;
use super::connections::{Rate, connect};
use super::node::{Node, world};
use super::{TURNS, median};
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Flows of a table that is full soon, and connections that fill it several times.
const SMALL: &str = "8192";
const FILLING: Rate = Rate {
    per_second: 4_000,
    length: Duration::from_secs(5),
};
/// Connections through the full table: few, so that the machine's processors are not the limit.
const SPARSE: Rate = Rate {
    per_second: 1_000,
    length: Duration::from_secs(3),
};

/// Compares a node with a small flow table and one with a large one.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let world = world(2)?;
    let bench = Bench::new(options, &world)?;
    let [first, second] = world.nodes() else {
        bail!("the world has too few nodes");
    };
    let step = Step::begin("start two nodes, one of them with a small flow table");
    let roomy = Node::start(&bench, first, &[])?;
    let small = Node::start(&bench, second, &["--flows-max", SMALL])?;
    step.done();
    compare(&bench, [&roomy, &small], report)
}

fn compare(bench: &Bench<'_>, [roomy, small]: [&Node; 2], report: &mut Report) -> Result<()> {
    let step = Step::begin("connect through an empty flow table and through a full one, in turns");
    let (mut ratios, mut empty_ms, mut full_ms) = (Vec::new(), Vec::new(), Vec::new());
    let mut failed = 0.0;
    for turn in 0..TURNS {
        let filled = connect(bench, small.node_port(turn), FILLING)?;
        let empty = connect(bench, roomy.node_port(turn), SPARSE)?;
        let full = connect(bench, small.node_port(turn), SPARSE)?;
        if turn == 0 {
            continue;
        }
        failed += filled.failed + empty.failed + full.failed;
        ratios.push(full.p999 / empty.p999);
        empty_ms.push(empty.p999);
        full_ms.push(full.p999);
    }
    step.done();
    let row = |name, value, unit| Row::measured(name, value, unit);
    report.push(row("empty flow table, p99.9", median(empty_ms), "ms"));
    report.push(row("full flow table, p99.9", median(full_ms), "ms"));
    let ratio = row("full : empty flow table, p99.9", median(ratios), "×");
    report.push(ratio.must(Bound::AtMost(2.0)));
    let lost = row(
        "failed, beside full and empty tables",
        failed,
        "connections",
    );
    report.push(lost.must(Bound::AtMost(0.0)));
    Ok(())
}

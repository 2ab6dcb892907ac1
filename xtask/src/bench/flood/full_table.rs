//! Connections through a flow table that is full, and through one that is not.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::super::Options;
use super::super::dataplane::Bench;
use super::connections::{Rate, Times, connect};
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

/// Connections beside the measured ones, to both nodes: those that have ended within the last two seconds, which no sweep removes,
/// need more room than a small table has.
const BESIDE: Rate = Rate {
    per_second: 2_000,
    length: Duration::from_secs(5),
};
/// Least fill of the table at the end of a measurement, as a part of its room.
const FILL_MIN: f64 = 0.75;
const ENTRIES: &str = "dormouse_map_entries{map=\"flow\"}";
const CAPACITY: &str = "dormouse_map_capacity{map=\"flow\"}";

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
    let (mut failed, mut least) = (0.0, f64::INFINITY);
    for turn in 0..TURNS {
        let filled = connect(bench, small.node_port(turn), FILLING)?;
        let (empty, _) = beside_others(bench, roomy, turn)?;
        let (full, part) = beside_others(bench, small, turn)?;
        if turn == 0 {
            continue;
        }
        least = least.min(part);
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
    let fill = row("fill of the full table, least", least, "of 1");
    report.push(fill.must(Bound::AtLeast(FILL_MIN)));
    let lost = row(
        "failed, beside full and empty tables",
        failed,
        "connections",
    );
    report.push(lost.must(Bound::AtMost(0.0)));
    Ok(())
}

/// Measured connections beside others to the same node; and the fill of its table right after them.
fn beside_others(bench: &Bench<'_>, node: &Node, turn: u16) -> Result<(Times, f64)> {
    std::thread::scope(|scope| {
        let others = scope.spawn(|| connect(bench, node.node_port(TURNS), BESIDE));
        let times = connect(bench, node.node_port(turn), SPARSE)?;
        let fill = node.metric(ENTRIES)? / node.metric(CAPACITY)?;
        let others = others
            .join()
            .map_err(|_panic| anyhow::anyhow!("the other connections panicked"))?;
        ensure!(
            others?.failed == 0.0,
            "of the other connections, some failed"
        );
        Ok((times, fill))
    })
}

//! Many connections of few clients to one backend, by a node port.

use std::time::Duration;

use anyhow::{Context, Result};

use super::super::Options;
use super::super::dataplane::Bench;
use super::connections::{Rate, connect};
use super::node::{Node, world};
use super::{TURNS, median};
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Connections to a node port, and straight to the pod: fewer than a backend has NAT ports, so that none is used twice.
const DENSE: Rate = Rate {
    per_second: 10_000,
    length: Duration::from_secs(2),
};
/// Connections that use each NAT port twice while the backend holds it in TIME_WAIT.
const LASTING: Rate = Rate {
    length: Duration::from_secs(5),
    ..DENSE
};
/// Connections to whose backend no other NAT port was free, and those that were dropped.
const REUSED: &str = "dormouse_packets_total{verdict=\"nat_port_reused\"}";
const WITHOUT: &str = "dormouse_packets_total{verdict=\"dropped_no_port\"}";

/// Compares a node port with its backend.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let world = world(1)?;
    let bench = Bench::new(options, &world)?;
    let host = world.nodes().first().context("the world has no node")?;
    let step = Step::begin("start a node");
    let node = Node::start(&bench, host, &[])?;
    step.done();
    compare(&bench, &node, report)
}

fn compare(bench: &Bench<'_>, node: &Node, report: &mut Report) -> Result<()> {
    let step = Step::begin("connect to a pod and to a node port, in turns");
    let (mut ratios, mut pod_ms, mut port_ms) = (Vec::new(), Vec::new(), Vec::new());
    let (mut per_second, mut failed) = (Vec::new(), 0.0);
    for turn in 0..TURNS {
        let direct = connect(bench, node.server(turn), DENSE)?;
        let by_port = connect(bench, node.node_port(turn), DENSE)?;
        if turn == 0 {
            continue;
        }
        failed += direct.failed + by_port.failed;
        per_second.push(by_port.per_second);
        ratios.push(by_port.p99 / direct.p99);
        pod_ms.push(direct.p99);
        port_ms.push(by_port.p99);
    }
    step.done();
    let row = |name, value, unit| Row::measured(name, value, unit);
    report.push(row(
        "node port from 4 clients, reached",
        median(per_second),
        "connections/s",
    ));
    report.push(row("straight to the pod, p99", median(pod_ms), "ms"));
    report.push(row("node port, p99", median(port_ms), "ms"));
    let ratio = row("node port : straight to the pod, p99", median(ratios), "×");
    report.push(ratio.must(Bound::AtMost(1.5)));
    let lost = row("failed, node port and pod", failed, "connections");
    report.push(lost.must(Bound::AtMost(0.0)));
    let early = row("NAT ports used early until then", node.metric(REUSED)?, "");
    report.push(early.must(Bound::AtMost(0.0)));
    exhaust(bench, node, report)
}

/// More connections to one backend within a minute than it has NAT ports: what is used early is reported.
fn exhaust(bench: &Bench<'_>, node: &Node, report: &mut Report) -> Result<()> {
    let step = Step::begin("connect to a node port until its NAT ports are used up");
    let direct = connect(bench, node.server(TURNS), LASTING)?;
    let by_port = connect(bench, node.node_port(TURNS), LASTING)?;
    step.done();
    let row = |name, value, unit| Row::measured(name, value, unit);
    let p99 = row("node port, NAT ports used up, p99", by_port.p99, "ms");
    report.push(p99.against(direct.p99));
    report.push(row("NAT ports used early then", node.metric(REUSED)?, ""));
    let dropped = row("connections without a NAT port", node.metric(WITHOUT)?, "");
    report.push(dropped.must(Bound::AtMost(0.0)));
    Ok(())
}

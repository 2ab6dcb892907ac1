//! Time to wire a pod: the plugin and the agent compared with the reference plugins bridge and host-local, on one node each.
//! Calls alternate between the two sides, so that noise affects both equally.

mod log;
mod side;
mod usable;

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dormouse_world::{Spec, World};

use self::side::Side;
use self::usable::Listener;
use super::Options;
use super::percentile::percentile;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

const PREFIX: &str = "bcni";
/// Pods of each side.
const PODS: usize = 500;
/// Pods of Dormouse's node at the end, as on a node of a large cluster.
const PODS_MANY: usize = 1_000;
/// Number of first and of last ADDs that are compared to see whether ADD slows down.
const EDGE: usize = 50;
/// Concurrent calls, as a container runtime makes them.
const CALLERS: usize = 4;
/// Calls of one side before the other side's turn.
const TURN: usize = 100;

/// 500 ADDs and DELs on each side, sequential and by four concurrent callers; then 1,000 pods, and a crash of the agent.
pub(super) fn run(options: &Options) -> Result<Report> {
    let world = World::build(&Spec {
        prefix: PREFIX.to_owned(),
        nodes: 2,
    })?;
    let [node, reference_node] = world.nodes() else {
        anyhow::bail!("the world has too few nodes");
    };
    let mut agent = side::start_agent(options, &world, node)?;
    let ours = Side::ours(node, &options.binaries.cni);
    let reference = Side::reference(reference_node)?;
    let mut report = Report::new("cni");
    let step = Step::begin("create the pods' namespaces");
    ours.make_pods(0, PODS_MANY)?;
    reference.make_pods(0, PODS)?;
    step.done();
    let first = report_adds(options, [&ours, &reference], &mut report)?;
    report_floor(&ours, &agent.output(), &first, &mut report)?;
    report_bursts([&ours, &reference], &mut report)?;
    report_deletes([&ours, &reference], &mut report)?;
    report_adds_beside_deletes(&ours, &mut report)?;
    report_many(&ours, &first, &mut report)?;
    usable::report(options, &ours, PODS_MANY, &mut report)?;
    let step = Step::begin("kill and restart the agent");
    agent.kill()?;
    let agent = side::start_agent(options, &world, node)?;
    step.done();
    let (pods, ms) = log::recovery(&agent.output()).context("the agent's log has no recovery")?;
    ensure!(pods >= PODS_MANY as f64, "only {pods} pods were recovered");
    let row = Row::measured("1,000 pods recovered after kill -9", ms, "ms");
    report.push(row.must(Bound::AtMost(100.0)));
    Ok(report)
}

/// Alternating ADDs; each pod of Dormouse sends a packet as soon as its ADD has returned.
fn report_adds(
    options: &Options,
    [ours, reference]: [&Side; 2],
    report: &mut Report,
) -> Result<Vec<f64>> {
    let step = Step::begin("add 500 pods on each side, one after the other");
    let (mut own, mut other) = (Vec::new(), Vec::new());
    let listener = Listener::open(ours)?;
    for pod in 0..PODS {
        options.interrupt.check()?;
        let added = ours.call("ADD", pod)?;
        ensure!(
            listener.receives_from(ours, pod, &added)?,
            "pod {pod} could not use its address"
        );
        own.push(added.ms);
        other.push(reference.call("ADD", pod)?.ms);
    }
    step.done();
    for (share, name, most) in [(0.5, "p50", 0.14), (0.99, "p99", 0.08)] {
        let row = Row::measured(
            &format!("ADD at 500 pods, {name}"),
            percentile(&own, share),
            "ms",
        );
        let row = row.against(percentile(&other, share));
        report.push(row.must(Bound::RatioAtMost(most)));
    }
    Ok(own)
}

/// The whole ADD compared with the time of the kernel's netlink processing and of a process start.
fn report_floor(ours: &Side, log: &str, adds: &[f64], report: &mut Report) -> Result<()> {
    let starts = (0..EDGE)
        .map(|pod| Ok(ours.call("VERSION", pod)?.ms))
        .collect::<Result<Vec<_>>>()?;
    let kernel = percentile(&log::kernel_ms(log), 0.5);
    let start = percentile(&starts, 0.5);
    report.push(Row::measured(
        "of which the kernel's netlink processing, p50",
        kernel,
        "ms",
    ));
    report.push(Row::measured(
        "of which the start of the plugin, p50",
        start,
        "ms",
    ));
    let row = Row::measured("ADD divided by these two, p50", percentile(adds, 0.5), "ms");
    report.push(row.against(kernel + start).must(Bound::RatioAtMost(1.5)));
    Ok(())
}

/// DEL and ADD of all pods by four concurrent callers.
fn report_bursts(sides: [&Side; 2], report: &mut Report) -> Result<()> {
    for (command, name) in [
        ("DEL", "DEL by four callers"),
        ("ADD", "ADD by four callers"),
    ] {
        let step = Step::begin(name);
        let mut ms = [0.0; 2];
        for first in (0..PODS).step_by(TURN) {
            for (side, ms) in sides.iter().zip(&mut ms) {
                *ms += concurrent_calls(side, command, first)?;
            }
        }
        step.done();
        let [own, other] = ms.map(|ms| ms / PODS as f64);
        let row = Row::measured(&format!("{name}, each"), own, "ms").against(other);
        report.push(row.must(Bound::RatioAtMost(0.2)));
    }
    Ok(())
}

/// Milliseconds for one turn.
fn concurrent_calls(side: &Side, command: &str, first: usize) -> Result<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let pods = (first + caller..first + TURN).step_by(CALLERS);
                scope.spawn(move || {
                    pods.into_iter()
                        .try_for_each(|pod| side.call(command, pod).map(drop))
                })
            })
            .collect();
        for caller in callers {
            caller
                .join()
                .map_err(|_panic| anyhow::anyhow!("a caller panicked"))??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Alternating DELs of some pods, which are then added again.
fn report_deletes([ours, reference]: [&Side; 2], report: &mut Report) -> Result<()> {
    let step = Step::begin("delete pods, one after the other");
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for pod in 0..TURN {
        own.push(ours.call("DEL", pod)?.ms);
        other.push(reference.call("DEL", pod)?.ms);
    }
    for pod in 0..TURN {
        ours.call("ADD", pod)?;
    }
    step.done();
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let row = Row::measured(
            &format!("DEL at 500 pods, {name}"),
            percentile(&own, share),
            "ms",
        );
        report.push(row.against(percentile(&other, share)));
    }
    Ok(())
}

/// ADDs one after the other, alone and while four callers delete other pods: deletions yield to them.
fn report_adds_beside_deletes(ours: &Side, report: &mut Report) -> Result<()> {
    let step = Step::begin("add pods while others are deleted");
    let (added, deleted) = (0..TURN, TURN..PODS);
    let delete = |pods: Range<usize>| {
        pods.into_iter()
            .try_for_each(|pod| ours.call("DEL", pod).map(drop))
    };
    let add = |pods: Range<usize>| -> Result<Vec<f64>> {
        pods.map(|pod| Ok(ours.call("ADD", pod)?.ms)).collect()
    };
    delete(added.clone())?;
    let alone = add(added.clone())?;
    delete(added.clone())?;
    let beside = std::thread::scope(|scope| {
        let share = deleted.len() / CALLERS;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let first = deleted.start + caller * share;
                scope.spawn(move || delete(first..first + share))
            })
            .collect();
        let beside = add(added)?;
        for caller in callers {
            caller
                .join()
                .map_err(|_panic| anyhow::anyhow!("a caller panicked"))??;
        }
        Ok::<_, anyhow::Error>(beside)
    })?;
    add(deleted)?;
    step.done();
    let tail = percentile(&beside, 0.99);
    let row = Row::measured("ADD while four callers DEL, p99", tail, "ms");
    report.push(row.against(percentile(&alone, 0.99)));
    Ok(())
}

/// The last of 1,000 ADDs compared with the first.
fn report_many(ours: &Side, first: &[f64], report: &mut Report) -> Result<()> {
    let step = Step::begin("add pods up to 1,000");
    let mut last = Vec::new();
    for pod in PODS..PODS_MANY {
        last.push(ours.call("ADD", pod)?.ms);
    }
    step.done();
    let row = Row::measured(
        "ADD at 1,000 pods, p50",
        percentile(&last[last.len() - EDGE..], 0.5),
        "ms",
    );
    let row = row.against(percentile(&first[..EDGE], 0.5));
    report.push(row.must(Bound::RatioAtMost(1.5)));
    Ok(())
}

//! Requests to awake apps and wakes of others while one host floods the VIP range, compared with an equal flood that the switch drops.
//!
//! Both floods have the same sender, the same rate and the same way to the switch: what differs is what the node does with one.

mod clients;

use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_world::{Host, Process, VIP_RANGE};

use self::clients::Times;
use super::super::Options;
use super::super::dataplane::ours;
use super::apps::Apps;
use super::scanner::{DROPPED, SOURCES, Scan, Scanner, Sent, VIPS};
use super::{PREFIX, TURNS, median};
use crate::demo::cluster::{Cluster, PATIENCE, sample};
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Apps that serve.
const SERVING: Apps = Apps {
    name: "serving",
    count: 100,
    first: 5_000,
    step: 10_000,
    min: 1,
};
/// Apps that are woken once each, so many on each side of a turn.
const WAKES: u16 = 10;
const SIDES: u16 = 3;
const SLEEPING: Apps = Apps {
    name: "sleeping",
    count: (WAKES * SIDES * TURNS) as u32,
    first: 7_001,
    step: 5_000,
    min: 0,
};
const _: () = assert!(SLEEPING.first + SLEEPING.count * SLEEPING.step < VIPS);
/// Length of a flood, which is longer than what is measured beside it.
const FLOOD: Duration = Duration::from_secs(6);
const _: () = assert!(FLOOD.as_millis() > clients::LENGTH.as_millis());
/// Largest ratios of the 99th percentiles.
const SERVED_MAX: f64 = 1.5;
const WOKEN_MAX: f64 = 2.0;

/// Least part of a flood that must reach the node: what is lost earlier costs it nothing.
const LIMITED_MIN_PERCENT: f64 = 90.0;
/// The floods, in the names of rows.
const DROPS: &str = "flood that the switch drops";
const FLOOD_OF_VIPS: &str = "flood of VIPs";

/// Measures without a flood, beside one that the switch drops, and beside one of the VIPs, in turns.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(PREFIX, 1, &options.binaries, &options.interrupt)?;
    let node = cluster.world().nodes().first();
    let node = node.context("there is no node")?;
    let scanner = Scanner::attach(options, cluster.world(), node)?;
    let step = Step::begin("create 100 apps that serve, and others that sleep");
    SERVING.create(&cluster)?;
    SLEEPING.create(&cluster)?;
    await_direct(&cluster)?;
    step.done();
    let step = Step::begin("measure how fast one core floods");
    let most = flood(&scanner, VIP_RANGE, None)?;
    let Sent { per_second, .. } = scanner.finish(most, FLOOD)?;
    step.done();
    let step = Step::begin("serve and wake beside floods, in turns");
    let bench = Flooded {
        cluster: &cluster,
        node,
        scanner: &scanner,
        per_second,
    };
    let sides = bench.turns()?;
    step.done();
    push(&sides, report);
    Ok(())
}

/// Waits until the node redirects to the pods of all apps that serve: until requests do not change the activator's counter.
fn await_direct(cluster: &Cluster) -> Result<()> {
    let what = "the apps to be served directly";
    cluster.interrupt().wait_for(what, PATIENCE, || {
        let before = cluster.activator_requests()?;
        cluster.world().client().enter(clients::each)??;
        Ok((cluster.activator_requests()? == before).then_some(()))
    })
}

/// Begins a flood of as many addresses as there are VIPs.
fn flood(scanner: &Scanner<'_>, first: Ipv6Addr, per_second: Option<f64>) -> Result<Process> {
    scanner.start(Scan {
        from: SOURCES[0],
        first,
        addresses: VIPS,
        per_second,
        length: Some(FLOOD),
    })
}

/// A cluster, its node, and the rate of floods.
struct Flooded<'a> {
    cluster: &'a Cluster,
    node: &'a Host,
    scanner: &'a Scanner<'a>,
    per_second: f64,
}

/// What was measured beside one kind of flood, by turn.
#[derive(Default)]
struct Side {
    times: Vec<Times>,
    floods: Vec<Sent>,
    /// Packets that the node has dropped because of the limit of wakes, in percent of the flood's segments.
    limited_percent: Vec<f64>,
}

impl Side {
    fn median(&self, of: impl Fn(&Times) -> f64) -> f64 {
        median(self.times.iter().map(of).collect())
    }

    /// The median of the turns' ratios.
    fn ratio(&self, to: &Self, of: impl Fn(&Times) -> f64) -> f64 {
        let pairs = self.times.iter().zip(&to.times);
        median(pairs.map(|(times, peer)| of(times) / of(peer)).collect())
    }
}

impl Flooded<'_> {
    /// The sides without a flood, with one that the switch drops, and with one of the VIPs.
    fn turns(&self) -> Result<[Side; SIDES as usize]> {
        let mut sides: [Side; SIDES as usize] = Default::default();
        let floods = [None, Some(DROPPED), Some(VIP_RANGE)];
        for turn in 0..TURNS {
            for (number, (side, first)) in (0..).zip(sides.iter_mut().zip(floods)) {
                let wakes = (turn * SIDES + number) * WAKES;
                let limited = self.limited()?;
                let (times, sent) = self.beside(first, wakes)?;
                if turn == 0 {
                    continue;
                }
                side.times.push(times);
                if let Some(sent) = sent {
                    let limited = (self.limited()? - limited) as f64;
                    side.limited_percent.push(limited / sent.segments * 100.0);
                    side.floods.push(sent);
                }
            }
        }
        Ok(sides)
    }

    /// Packets that the node has dropped because of the limit of wakes.
    fn limited(&self) -> Result<u64> {
        const LIMITED: &str = "dormouse_drops_total{reason=\"wake_limit\"}";
        sample(self.node, ours::METRICS_PORT, &[LIMITED])
    }

    /// Requests and wakes, from the app with this number on, beside a flood.
    fn beside(&self, first: Option<Ipv6Addr>, wakes: u16) -> Result<(Times, Option<Sent>)> {
        let rate = Some(self.per_second);
        let flood = first
            .map(|first| flood(self.scanner, first, rate))
            .transpose()?;
        let measure = || clients::measure(wakes.into());
        let times = self.cluster.world().client().enter(measure)?;
        let Some(mut flood) = flood else {
            return Ok((times, None));
        };
        ensure!(flood.ended().is_none(), "the flood ended too early");
        Ok((times, Some(self.scanner.finish(flood, FLOOD)?)))
    }
}

fn push(sides: &[Side; SIDES as usize], report: &mut Report) {
    let [_, dropped, flooded] = sides;
    for (name, side) in [(DROPS, dropped), (FLOOD_OF_VIPS, flooded)] {
        let rates = side.floods.iter().map(|sent| sent.per_second);
        let name = format!("{name}: segments");
        report.push(Row::measured(&name, median(rates.collect()), "/s"));
    }
    let limited = median(flooded.limited_percent.clone());
    let name = format!("{FLOOD_OF_VIPS}: dropped by the limit of wakes");
    let row = Row::measured(&name, limited, "% of segments");
    report.push(row.must(Bound::AtLeast(LIMITED_MIN_PERCENT)));
    push_times(
        ("served", |times| times.served_p99_ms),
        sides,
        SERVED_MAX,
        report,
    );
    push_times(
        ("wake", |times| times.woken_p99_ms),
        sides,
        WOKEN_MAX,
        report,
    );
    let failed = sides.iter().flat_map(|side| &side.times);
    let failed = failed.map(|times| times.failed).sum();
    let row = Row::counted("requests and wakes that failed", failed, "");
    report.push(row.must(Bound::AtMost(0.0)));
}

/// The times beside each kind of flood, and the ratio with the bound.
fn push_times(
    (what, of): (&str, fn(&Times) -> f64),
    [quiet, dropped, flooded]: &[Side; SIDES as usize],
    most: f64,
    report: &mut Report,
) {
    for (when, side) in [
        ("without a flood", quiet),
        (DROPS, dropped),
        (FLOOD_OF_VIPS, flooded),
    ] {
        let name = format!("{what} p99, {when}");
        report.push(Row::measured(&name, side.median(of), "ms"));
    }
    let name = format!("{what} p99, {FLOOD_OF_VIPS} : {DROPS}");
    let row = Row::measured(&name, flooded.ratio(dropped, of), "×");
    report.push(row.must(Bound::AtMost(most)));
}

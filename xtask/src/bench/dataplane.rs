//! What the network costs: connections to VIPs against kube-proxy's rules and against none, and streams against a plain
//! bridge.
//!
//! Every side has two nodes of its own in one world. Sides are looked at in turns and ratios are taken within a round,
//! so that both numbers of a ratio meet the same noise; the median round is told.

mod commands;
mod iptables;
mod load;
mod manifests;
mod maps;
mod nftables;
mod ours;
mod pods;
mod race;
mod services;
mod side;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{Host, Spec, World};

use self::pods::STREAM_PORT;
use self::race::Lane;
use self::side::{Kind, Side};
use super::Options;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// The world's prefix.
const PREFIX: &str = "bnet";
/// A cluster of everyday size, and a large one.
const FEW: u32 = 100;
const MANY: u32 = 10_000;
/// Looks at each side.
const CONNECTION_ROUNDS: usize = 21;
const STREAM_ROUNDS: usize = 15;
/// Ten thousand Services may take a while to be in force.
const SERVING_LIMIT: Duration = Duration::from_mins(2);
/// Two sides that are alike differ by so much from run to run.
const ALIKE: f64 = 0.97;
/// Connections to a VIP may cost so little more than to the pod itself.
const NO_VIP: f64 = 0.95;
/// Streams must reach so much of a plain bridge's.
const STREAM: f64 = 0.97;

/// What a measurement needs everywhere.
pub(super) struct Bench<'a> {
    /// What was asked for.
    pub(super) options: &'a Options,
    /// The hosts.
    pub(super) world: &'a World,
    /// The program that asks and answers.
    pub(super) load: PathBuf,
}

/// The sides, by what serves VIPs there.
struct Sides {
    plain: Side,
    ours: Side,
    ours_many: Side,
    iptables: Side,
    nftables: Side,
}

/// Short connections, then streams, side by side.
pub(super) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("dataplane");
    maps::report(&mut report)?;
    let world = World::build(&Spec {
        prefix: PREFIX.to_owned(),
        nodes: 10,
    })?;
    let bench = Bench {
        options,
        world: &world,
        load: load_program(&options.binaries.hello)?,
    };
    like_cables(&world)?;
    let sides = Sides::start(&bench)?;
    report_connections(&bench, &sides, &mut report)?;
    report_streams(&bench, &sides, &mut report)?;
    Ok(report)
}

/// Beside the other programs, where cargo put them.
fn load_program(beside: &Path) -> Result<PathBuf> {
    let path = beside.with_file_name("dormouse-load");
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}

/// A cable carries frames of its MTU. Between namespaces the switch must cut them, or links that do no work at all would
/// be compared.
fn like_cables(world: &World) -> Result<()> {
    let switch = world
        .client()
        .netns
        .with_file_name(format!("{PREFIX}-switch"));
    commands::set(&switch, "bridge/bridge-nf-call-ip6tables", "0")?;
    for number in 1..=world.nodes().len() {
        let port = format!("node-{number}");
        let cut = ["ethtool", "-K", &port, "tso", "off", "gso", "off"];
        commands::run(Some(&switch), &cut, "")?;
    }
    Ok(())
}

impl Sides {
    fn start(bench: &Bench<'_>) -> Result<Self> {
        let mut nodes = bench.world.nodes().chunks_exact(2);
        let mut start = |title: &str, kind, count| {
            let Some([first, second]) = nodes.next() else {
                bail!("the world has too few nodes");
            };
            let step = Step::begin(title);
            let side = start_one(bench, kind, [first, second], count);
            let side = side.with_context(|| format!("failed to {title}"))?;
            step.done();
            Ok(side)
        };
        Ok(Self {
            plain: start("wire pods by bridge and routes", Kind::Plain, FEW)?,
            iptables: start("serve 100 Services by iptables", Kind::Iptables, FEW)?,
            nftables: start("serve 100 Services by nftables", Kind::Nftables, FEW)?,
            ours: start("serve 100 Services", Kind::Ours, FEW)?,
            ours_many: start("serve 10,000 Services", Kind::Ours, MANY)?,
        })
    }
}

fn start_one(bench: &Bench<'_>, kind: Kind, nodes: [&Host; 2], count: u32) -> Result<Side> {
    let side = Side::start(bench, kind, nodes, count)?;
    let client = &side.pods.client;
    for target in side.pods.answering() {
        load::wait(bench, client, target, SERVING_LIMIT)?;
    }
    if kind != Kind::Plain {
        load::wait(
            bench,
            client,
            side.services.short().address(),
            SERVING_LIMIT,
        )?;
    }
    Ok(side)
}

fn report_connections(bench: &Bench<'_>, sides: &Sides, report: &mut Report) -> Result<()> {
    let to_pods = |name, side| Lane::new(name, side, side.pods.answering());
    let to_vip = |name, side| Lane::new(name, side, vec![side.services.short().address()]);
    let mut lanes = [
        to_vip("VIP of 100", &sides.ours),
        to_vip("VIP of 10,000", &sides.ours_many),
        to_pods("to the pod, our nodes", &sides.ours),
        to_pods("to the pod, plain nodes", &sides.plain),
        to_vip("iptables, VIP of 100", &sides.iptables),
        to_vip("nftables, VIP of 100", &sides.nftables),
    ];
    let title = "short connections, side by side";
    race::run(bench, title, CONNECTION_ROUNDS, &mut lanes, |lane| {
        let (rate, failed) = load::connections(bench, lane.client, &lane.targets)?;
        lane.failed += failed;
        Ok(rate)
    })?;
    for lane in &lanes {
        report.push(Row::measured(lane.name, lane.median(), "connections/s"));
    }
    let [few, many, pod, plain, iptables, nftables] = &lanes;
    for (name, lanes) in [
        ("failed, our nodes", [few, many, pod]),
        ("failed, the other nodes", [plain, iptables, nftables]),
    ] {
        let failed = lanes.iter().map(|lane| lane.failed).sum();
        report.push(Row::measured(name, failed, "connections"));
    }
    ratio(report, "VIP of 100 : iptables", few.against(iptables), 1.0);
    ratio(report, "VIP of 100 : nftables", few.against(nftables), 1.0);
    ratio(report, "VIP of 100 : no VIP", few.against(plain), NO_VIP);
    ratio(
        report,
        "VIP of 10,000 : VIP of 100",
        many.against(few),
        ALIKE,
    );
    Ok(())
}

fn report_streams(bench: &Bench<'_>, sides: &Sides, report: &mut Report) -> Result<()> {
    let across = |name, side| Lane::new(name, side, vec![side.pods.servers[0].at(STREAM_PORT)]);
    let local = |name, side| Lane::new(name, side, vec![side.pods.neighbor.at(STREAM_PORT)]);
    let vip = |name, side| Lane::new(name, side, vec![side.services.stream().address()]);
    // Of what is compared, nothing follows a stream between the same pods: that would be slower for what this one left behind.
    let mut lanes = [
        across("stream to another node, plain", &sides.plain),
        across("stream to another node", &sides.ours),
        across("stream from another node, plain", &sides.plain).down(),
        across("stream from another node", &sides.ours).down(),
        local("stream on one node, plain", &sides.plain),
        local("stream on one node", &sides.ours),
        vip("stream to a VIP", &sides.ours),
    ];
    let title = "streams, side by side";
    race::run(bench, title, STREAM_ROUNDS, &mut lanes, |lane| {
        let target = lane.targets.first().context("a stream has a target")?;
        load::stream(bench, lane.client, *target, lane.direction)
    })?;
    for lane in &lanes {
        report.push(Row::measured(lane.name, lane.median(), "Gbit/s"));
    }
    let [plain_up, up, plain_down, down, ..] = &lanes;
    ratio(
        report,
        "stream to another node : plain",
        up.against(plain_up),
        STREAM,
    );
    ratio(
        report,
        "stream from another node : plain",
        down.against(plain_down),
        STREAM,
    );
    Ok(())
}

fn ratio(report: &mut Report, name: &str, ratio: f64, least: f64) {
    report.push(Row::measured(name, ratio, "×").must(Bound::AtLeast(least)));
}

//! Performance of the data path: connections to VIPs compared with kube-proxy's rules and with direct connections, and
//! streams compared with a plain bridge.
//!
//! Each side has two nodes in one world. Measurements of the sides are interleaved and ratios are taken within a round, so
//! that noise affects both numbers of a ratio equally; the median ratio of all rounds is reported.

pub(super) mod commands;
mod iptables;
pub(super) mod load;
mod manifests;
mod maps;
mod nftables;
pub(super) mod ours;
pub(super) mod pods;
mod race;
mod services;
pub(super) mod side;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{Host, Spec, World};

use self::pods::STREAM_PORT;
use self::race::{Race, Series};
use self::side::{Kind, Side};
use super::Options;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// The world's prefix.
const PREFIX: &str = "bnet";
/// Services of a small cluster and of a large one.
const FEW: u32 = 100;
const MANY: u32 = 10_000;
/// Rounds of measurements.
const CONNECTION_ROUNDS: usize = 21;
const STREAM_ROUNDS: usize = 15;
/// Longest time until 10,000 Services are in force.
const SERVING_LIMIT: Duration = Duration::from_mins(2);
/// Least ratio of two sides that must be equally fast: equal sides differ by up to 0.03 from run to run.
const EQUAL: f64 = 0.97;
/// Least ratio of connections to a VIP and directly to a pod.
const NO_VIP: f64 = 0.95;
/// Least ratio of streams with the data path and over a plain bridge.
const STREAM: f64 = 0.97;

/// The parameters of all measurements.
pub(super) struct Bench<'a> {
    /// The command's arguments.
    pub(super) options: &'a Options,
    /// The hosts.
    pub(super) world: &'a World,
    /// Path of `dormouse-load`, client and server of short connections.
    pub(super) load: PathBuf,
}

impl<'a> Bench<'a> {
    /// Fails if cargo did not build `dormouse-load`.
    pub(super) fn new(options: &'a Options, world: &'a World) -> Result<Self> {
        Ok(Self {
            options,
            world,
            load: load_program(&options.binaries.hello)?,
        })
    }
}

/// The sides, by the implementation of VIPs.
struct Sides {
    plain: Side,
    ours: Side,
    ours_many: Side,
    iptables: Side,
    nftables: Side,
}

/// All groups of rows, by name.
pub(super) const GROUPS: &[&str] = &[MAPS, CONNECTIONS, STREAMS];
const MAPS: &str = "maps";
const CONNECTIONS: &str = "connections";
const STREAMS: &str = "streams";

/// Measures the groups of rows in `options`.
pub(super) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("dataplane");
    if options.runs(MAPS) {
        maps::report(&mut report)?;
    }
    if options.runs(CONNECTIONS) || options.runs(STREAMS) {
        between_nodes(options, &mut report)?;
    }
    Ok(report)
}

/// Measures short connections and streams.
fn between_nodes(options: &Options, report: &mut Report) -> Result<()> {
    let world = World::build(&Spec {
        prefix: PREFIX.to_owned(),
        nodes: 10,
    })?;
    let bench = Bench::new(options, &world)?;
    disable_segmentation_offload(&world)?;
    let sides = Sides::start(&bench)?;
    if options.runs(CONNECTIONS) {
        report_connections(&bench, &sides, report)?;
    }
    if options.runs(STREAMS) {
        report_streams(&bench, &sides, report)?;
    }
    Ok(())
}

/// The program beside the others that cargo built.
pub(super) fn load_program(beside: &Path) -> Result<PathBuf> {
    let path = beside.with_file_name("dormouse-load");
    ensure!(
        path.is_file(),
        "{} is missing: cargo did not build it",
        path.display()
    );
    Ok(path)
}

/// Makes the switch segment packets to the MTU, as a network card does. Otherwise packets up to 64 KiB would pass between
/// namespaces, and the comparison would measure links without work.
fn disable_segmentation_offload(world: &World) -> Result<()> {
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
    let to_pods = |name, side| Series::new(name, side, side.pods.answering());
    let to_vip = |name, side| Series::new(name, side, vec![side.services.short().address()]);
    let mut series = [
        to_vip("VIP of 100", &sides.ours),
        to_vip("VIP of 10,000", &sides.ours_many),
        to_pods("to the pod, nodes with Dormouse", &sides.ours),
        to_pods("to the pod, plain nodes", &sides.plain),
        to_vip("iptables, VIP of 100", &sides.iptables),
        to_vip("nftables, VIP of 100", &sides.nftables),
    ];
    let race = Race {
        title: "short connections, interleaved",
        rounds: CONNECTION_ROUNDS,
    };
    race.run(bench, &mut series, |one| {
        let (per_second, failed) = load::connections(bench, one.client, &one.targets)?;
        one.failed += failed;
        Ok(per_second)
    })?;
    for one in &series {
        report.push(Row::measured(one.name, one.median(), "connections/s"));
    }
    let [few, many, pod, plain, iptables, nftables] = &series;
    for (name, series) in [
        ("failed, nodes with Dormouse", [few, many, pod]),
        ("failed, other nodes", [plain, iptables, nftables]),
    ] {
        let failed = series.iter().map(|one| one.failed).sum();
        report.push(Row::measured(name, failed, "connections"));
    }
    ratio(report, "VIP of 100 : iptables", few.against(iptables), 1.0);
    ratio(report, "VIP of 100 : nftables", few.against(nftables), 1.0);
    ratio(report, "VIP of 100 : no VIP", few.against(plain), NO_VIP);
    ratio(
        report,
        "VIP of 10,000 : VIP of 100",
        many.against(few),
        EQUAL,
    );
    Ok(())
}

fn report_streams(bench: &Bench<'_>, sides: &Sides, report: &mut Report) -> Result<()> {
    let across = |name, side| Series::new(name, side, vec![side.pods.servers[0].at(STREAM_PORT)]);
    let local = |name, side| Series::new(name, side, vec![side.pods.neighbor.at(STREAM_PORT)]);
    let vip = |name, side| Series::new(name, side, vec![side.services.stream().address()]);
    // No compared stream follows one between the same pods: the former's state would slow it down.
    let mut series = [
        across("stream to another node, plain", &sides.plain),
        across("stream to another node", &sides.ours),
        across("stream from another node, plain", &sides.plain).down(),
        across("stream from another node", &sides.ours).down(),
        local("stream on one node, plain", &sides.plain),
        local("stream on one node", &sides.ours),
        vip("stream to a VIP", &sides.ours),
    ];
    let race = Race {
        title: "streams, interleaved",
        rounds: STREAM_ROUNDS,
    };
    race.run(bench, &mut series, |one| {
        let target = one.targets.first().context("a stream has a target")?;
        load::stream(bench, one.client, *target, one.direction)
    })?;
    for one in &series {
        report.push(Row::measured(one.name, one.median(), "Gbit/s"));
    }
    let [plain_up, up, plain_down, down, ..] = &series;
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

//! All agents at once: the CPU time of control for their handshakes and streams, and the delay of streams that are served meanwhile.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_fleet::client::Target;
use dormouse_rows::sample::{Sample, median};
use dormouse_rows::{Bound, Row, say};
use tokio::runtime::{Builder, Handle};

use super::{Options, folder};
use crate::certificates::Certificates;
use crate::control::{self, Server, Site};
use crate::cores;
use crate::node::{self, Nodes};
use crate::probe::Probes;

/// Nodes whose streams are served, and the number of the first.
const PROBES: u16 = 20;
const PROBES_FROM: u16 = 20_000;
/// Agents for which the bounds hold.
const AGENTS: f64 = 10_000.0;
/// Time of the measurement without other agents, and that from one measurement to the next: what follows it is over.
const BEFORE: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(5);
/// Reconnections that are measured.
const ROUNDS: usize = 5;
/// Threads of the agents.
const THREADS: usize = 2;
const MB: f64 = 1e6;
/// The core of control, and that of the agents and of the served streams' ends.
const OF_CONTROL: usize = 0;
const OF_AGENTS: usize = 1;
/// Connections that are for others than these agents.
const OTHERS: u64 = 100;

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let _kept = cores::keep_to(OF_AGENTS)?;
    let site = Site {
        core: Some(OF_CONTROL),
        ..options.site(&folder)
    };
    let up = site.secured(&["--without", "activator"]).await?;
    let certificates = Certificates::of(site)?;
    let limit = control::limit(site.folder, "up", "limit of connected nodes").await?;
    let agents_max = limit.saturating_sub(OTHERS) / 1_000 * 1_000;
    let count = options
        .agents
        .min(u16::try_from(agents_max).unwrap_or(u16::MAX));
    let agents = (0..count).map(|number| certificates.node(&node::name(number)));
    let agents = agents.collect::<Result<Vec<_>>>()?;
    let probes = (PROBES_FROM..PROBES_FROM + PROBES)
        .map(|number| Ok((number, certificates.node(&node::name(number))?)));
    let of_probes = Runtime::of_probes()?;
    let mut probes = Probes::open(probes.collect::<Result<Vec<_>>>()?, &of_probes.handle).await?;
    let of_agents = Runtime::of_agents()?;
    let (nodes, _) = connect(&agents, &of_agents).await?;
    say("all agents are connected for the first time");
    tokio::time::sleep(SETTLE).await;
    drop(nodes);
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        rounds.push(round(&up, &agents, &mut probes, &of_agents).await?);
        say(&format!(
            "all agents have reconnected, {number} of {ROUNDS}"
        ));
    }
    report(&rounds, count, up.process.resident_peak()? as f64 / MB)?;
    up.stop().await
}

/// One reconnection of all agents.
struct Round {
    /// The CPU time of control for it, in seconds, without that for the served streams.
    cpu_s: f64,
    /// Time until all streams were open.
    elapsed: Duration,
    /// Attempts that were refused, and were repeated.
    refused: usize,
    /// The delays of served streams meanwhile, and before.
    during: Sample,
    before: Sample,
}

async fn connect(agents: &[Target], runtime: &Runtime) -> Result<(Nodes, Duration)> {
    let agents = agents.to_vec();
    // Also what counts their streams has their priority: it is woken by each.
    let connected = runtime.handle.spawn(async move {
        let began = Instant::now();
        let nodes = Nodes::at(agents, &Handle::current());
        nodes.are_open().await?;
        anyhow::Ok((nodes, began.elapsed()))
    });
    connected.await?
}

async fn round(
    up: &Server,
    agents: &[Target],
    probes: &mut Probes,
    runtime: &Runtime,
) -> Result<Round> {
    tokio::time::sleep(SETTLE).await;
    let cpu_before = up.process.cpu()?;
    let alone = async {
        tokio::time::sleep(BEFORE).await;
        Ok(())
    };
    let (before, ()) = probes.beside(alone).await?;
    let cpu = up.process.cpu()?;
    // The beats are part of the load, but not of what is measured.
    let beats = cpu.saturating_sub(cpu_before).as_secs_f64() / before.elapsed.as_secs_f64();
    let (during, (nodes, elapsed)) = probes.beside(connect(agents, runtime)).await?;
    let cpu = up.process.cpu()?.saturating_sub(cpu).as_secs_f64();
    Ok(Round {
        cpu_s: cpu - beats * during.elapsed.as_secs_f64(),
        elapsed,
        refused: nodes.streams().lost,
        during,
        before,
    })
}

fn report(rounds: &[Round], count: u16, memory: f64) -> Result<()> {
    let factor = AGENTS / f64::from(count);
    let name = format!(
        "{AGENTS} agents reconnect at once (measured: {count}, {ROUNDS} times): CPU of control, without that of {PROBES} served streams"
    );
    let of = |figure: fn(&Round) -> f64| median(rounds, figure);
    Row::new(name, of(|round| round.cpu_s) * factor, "s")
        .must(Bound::AtMost(10.0))
        .print()?;
    let row = |name: &str, value, unit| {
        Row::new(format!("the same, {count} agents: {name}"), value, unit)
    };
    let elapsed = of(|round| round.elapsed.as_secs_f64());
    row("until all streams are open", elapsed, "s").print()?;
    let refused = of(|round| round.refused as f64);
    let name = "attempts that were refused, and were repeated";
    row(name, refused, "").print()?;
    row("highest memory of control", memory, "MB").print()?;
    let delays = |of: fn(&Round) -> &Sample| rounds.iter().map(of).collect::<Vec<_>>();
    let [during, before] = [delays(|round| &round.during), delays(|round| &round.before)];
    let delay = |percent: u8| {
        let name = format!(
            "the same, {count} agents: from a beat to its grant on served streams, p{percent}"
        );
        let share = f64::from(percent) / 100.0;
        Row::compared(name, "ms", [&during, &before], |sample| {
            sample.latency_us(share) / 1e3
        })
    };
    delay(50).print()?;
    delay(99).must(Bound::RatioAtMost(2.0)).print()?;
    Ok(())
}

/// A runtime that ends when this is dropped.
struct Runtime {
    handle: Handle,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Runtime {
    /// The agents' runtime uses its core only while the served streams' ends do not (SCHED_IDLE): on a real cluster, each agent has processors of its
    /// own.
    fn of_agents() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        Self::start(builder.worker_threads(THREADS).on_thread_start(make_idle))
    }

    /// The runtime of the served streams' ends has one thread. While two shared a core, also with the thread that counts the agents' streams, the
    /// kernel let idle threads go on for milliseconds, up to its next tick, when an end was ready: a delay of the load, not of control.
    fn of_probes() -> Result<Self> {
        Self::start(Builder::new_multi_thread().worker_threads(1))
    }

    fn start(builder: &mut Builder) -> Result<Self> {
        let runtime = builder
            .enable_all()
            .build()
            .context("failed to start a runtime")?;
        let handle = runtime.handle().clone();
        let (end, ended) = tokio::sync::oneshot::channel();
        // A runtime must not be dropped by a task of another one.
        std::thread::spawn(move || drop(runtime.block_on(ended)));
        Ok(Self { handle, _end: end })
    }
}

/// Makes this thread idle beside any other. With the usual priority the figures are only worse.
fn make_idle() {
    let thread = rustix::thread::gettid().as_raw_pid().to_string();
    let changed = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .output();
    if !changed.is_ok_and(|changed| changed.status.success()) {
        say("the agents have the usual priority: `chrt` has failed");
    }
}

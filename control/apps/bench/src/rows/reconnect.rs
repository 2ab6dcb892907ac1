//! All agents at once: the CPU time of control for their handshakes and streams, and the delay of streams that are served meanwhile.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_rows::{Bound, Row, say};
use tokio::runtime::{Builder, Handle};

use super::{Options, folder};
use crate::certificates::Certificates;
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
/// Threads of the agents.
const THREADS: usize = 2;
const MB: f64 = 1e6;
/// Descriptors that `dormouse up` reserves, the parts into which it divides the others without an activator (`control/src/descriptors.rs`), and
/// those of a part that are for the probes.
const RESERVED: u64 = 640;
const PARTS: u64 = 3;
const OTHERS: u64 = 100;

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let up = site.secured(&["--without", "activator"]).await?;
    let certificates = Certificates::of(site)?;
    let count = options.agents.min(descriptors());
    let agents = (0..count).map(|number| certificates.node(&node::name(number)));
    let agents = agents.collect::<Result<Vec<_>>>()?;
    let probes = (PROBES_FROM..PROBES_FROM + PROBES)
        .map(|number| Ok((number, certificates.node(&node::name(number))?)));
    let mut probes = Probes::open(probes.collect::<Result<Vec<_>>>()?).await?;
    let runtime = Runtime::start()?;
    let connect = async || {
        let began = Instant::now();
        let nodes = Nodes::at(agents.iter().cloned(), &runtime.handle);
        nodes.are_open().await?;
        anyhow::Ok((nodes, began.elapsed()))
    };
    let (nodes, _) = connect().await?;
    say("all agents are connected for the first time");
    tokio::time::sleep(SETTLE).await;
    drop(nodes);
    tokio::time::sleep(SETTLE).await;
    let cpu_before = up.process.cpu()?;
    let (before, ()) = probes
        .beside(async {
            tokio::time::sleep(BEFORE).await;
            Ok(())
        })
        .await?;
    let cpu = up.process.cpu()?;
    // The beats are part of the load, but not of what is measured.
    let beats = cpu.saturating_sub(cpu_before).as_secs_f64() / before.elapsed.as_secs_f64();
    let (during, (nodes, elapsed)) = probes.beside(connect()).await?;
    let cpu = up.process.cpu()?.saturating_sub(cpu).as_secs_f64();
    let cpu = cpu - beats * during.elapsed.as_secs_f64();
    let refused = nodes.streams().lost;
    let memory = up.process.resident_peak()? as f64 / MB;
    drop(nodes);
    let factor = AGENTS / f64::from(count);
    let name = format!(
        "{AGENTS} agents reconnect at once (measured: {count}): CPU of control, without that of {PROBES} served streams"
    );
    Row::new(name, cpu * factor, "s")
        .must(Bound::AtMost(10.0))
        .print()?;
    let row = |name: &str, value, unit| {
        Row::new(format!("the same, {count} agents: {name}"), value, unit)
    };
    row("until all streams are open", elapsed.as_secs_f64(), "s").print()?;
    row(
        "attempts that were refused, and were repeated",
        refused as f64,
        "",
    )
    .print()?;
    row("highest memory of control", memory, "MB").print()?;
    let delay = |share| [&during, &before].map(|sample| sample.latency_us(share) / 1e3);
    let [p50, p50_before] = delay(0.5);
    row("from a beat to its grant on served streams, p50", p50, "ms")
        .against(p50_before)
        .print()?;
    let [p99, p99_before] = delay(0.99);
    row("from a beat to its grant on served streams, p99", p99, "ms")
        .against(p99_before)
        .must(Bound::RatioAtMost(2.0))
        .print()?;
    up.stop().await
}

/// A runtime that uses idle processors only (SCHED_IDLE), and ends when this is dropped: on a real cluster, the agents have processors of their own.
struct Runtime {
    handle: Handle,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Runtime {
    fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .on_thread_start(make_idle)
            .enable_all()
            .build()
            .context("failed to start the agents' runtime")?;
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

/// The thousands of agents for which control has descriptors.
fn descriptors() -> u16 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit.current.unwrap_or(u64::MAX);
    let part = limit.saturating_sub(RESERVED) / PARTS;
    // A quarter is for handshakes.
    let agents = (part - part / 4).saturating_sub(OTHERS) / 1_000 * 1_000;
    u16::try_from(agents).unwrap_or(u16::MAX)
}

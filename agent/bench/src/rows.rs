//! The rows of the report, in groups that can run alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dormouse_rows::process::Process;
use dormouse_rows::sample::Sample;
use dormouse_rows::{Bound, Row, host, progress, say};
use futures::future::try_join_all;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::Api;
use crate::kernel::Kernel;
use crate::objects::ENDPOINTS_MAX;
use crate::place::{self, Agent, Programs, Site};
use crate::relay::Relay;

/// Measures an agent that follows Services at `dormouse up`; each row is a line of JSON on standard output
#[derive(Parser)]
pub(crate) struct Options {
    /// The program `dormouse`
    #[arg(long, value_name = "PROGRAM")]
    dormouse: PathBuf,
    /// The program `dormouse-agent`
    #[arg(long, value_name = "PROGRAM")]
    agent: PathBuf,
    /// Services; the group `million` has ten times as many
    #[arg(long, default_value_t = 10_000)]
    services: u32,
    /// Endpoints of each Service, at most 16
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(ENDPOINTS_MAX)))]
    endpoints: u32,
    /// Duration of the rows of an idle agent: longer than the interval of bookmarks
    #[arg(long, default_value_t = 70)]
    idle_seconds: u64,
    /// Run only these groups of rows
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<String>,
}

/// The groups, and the seconds that each takes on a machine with two cores.
const GROUPS: [(&str, u64); 2] = [("services", 150), ("million", 150)];
/// How many times as many Services the group `million` has.
const MANY: u32 = 10;

/// Bounds of a start: seconds, and resident MB, for the groups.
const PROGRAMMED_MAX: f64 = 2.0;
const RESIDENT_MAX: f64 = 150.0;
const MANY_STARTED_MAX: f64 = 30.0;
const MANY_RESIDENT_MAX: f64 = 500.0;
/// Bound of the highest resident memory, in multiples of that afterwards.
const PEAK_MAX: f64 = 2.0;
/// Bounds of the time from a request to the kernel, in milliseconds.
const VISIBLE_P50_MAX: f64 = 2.0;
const VISIBLE_P99_MAX: f64 = 10.0;
/// Bounds of the agent's CPU time, in percent of a core.
const CHURN_MAX: f64 = 15.0;
const IDLE_MAX: f64 = 0.5;
/// Bound of the open watches.
const WATCHES_MAX: f64 = 3.0;

/// Changes whose latency is measured, and the pause between them.
const CHANGES: u32 = 1_000;
const CHANGE_PAUSE: Duration = Duration::from_millis(3);
/// Changes of the load, in parts of equal size.
const CHURN: Duration = Duration::from_secs(10);
const CHURN_RATE: u32 = 1_000;
const CHURN_PART: u32 = 10;
/// Least share of that rate that the API must reach for the row to count.
const CHURN_SHARE_MIN: f64 = 0.95;
/// Time for an agent to return memory and end what its start began.
const SETTLE: Duration = Duration::from_secs(3);

/// Runs the groups and prints their rows, then those about the machine.
pub(crate) async fn run(options: &Options) -> Result<()> {
    for name in &options.only {
        let known = GROUPS.map(|(name, _)| name);
        let list = known.join(", ");
        ensure!(
            known.contains(&name.as_str()),
            "no group `{name}`; there are {list}"
        );
    }
    let runs = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let host = host::Before::read()?;
    let total = GROUPS.iter().filter(|(name, _)| runs(name));
    let total = total.map(|(_, seconds)| seconds).sum();
    let mut done = 0;
    for (name, seconds) in GROUPS.into_iter().filter(|(name, _)| runs(name)) {
        say(&progress::line(done, total, name));
        let measured = match name {
            "million" => million(options).await,
            _ => services(options).await,
        };
        if let Err(error) = measured {
            // A row that misses its bound instead of those that were not measured; the other group goes on.
            Row::new(format!("group {name} ended early: {error:#}"), 0.0, "")
                .must(Bound::AtLeast(1.0))
                .print()?;
        }
        done += seconds;
    }
    host.report()
}

impl Options {
    fn programs(&self) -> Programs {
        Programs {
            dormouse: self.dormouse.clone(),
            agent: self.agent.clone(),
        }
    }
}

/// All rows of a cluster with many Services.
async fn services(options: &Options) -> Result<()> {
    let (count, endpoints) = (options.services, options.endpoints);
    let programs = options.programs();
    let site = Site::build(&programs).await?;
    let api = Arc::new(site.api().await?);
    api.create(count, endpoints).await?;
    let agent = site.start_agent(place::api()).await?;
    let all = label(count, endpoints);
    Row::new(
        format!("{all}: last byte of the lists to all in force"),
        agent.programming.as_secs_f64(),
        "s",
    )
    .must(Bound::AtMost(PROGRAMMED_MAX))
    .print()?;
    Row::new(
        format!("{all}: start of the agent to all in force"),
        agent.start.as_secs_f64(),
        "s",
    )
    .print()?;
    memory(&agent, &all, RESIDENT_MAX).await?;
    let kernel = Kernel::open(&site.node()?.bpffs)?;
    kernel.check(count, endpoints)?;
    changes(options, &api, &kernel).await?;
    churn(options, (&*api, &kernel), &agent).await?;
    drop(agent);
    idle(options, &site).await
}

/// A start with ten times as many Services.
async fn million(options: &Options) -> Result<()> {
    let (count, endpoints) = (MANY * options.services, options.endpoints);
    let programs = options.programs();
    let site = Site::build(&programs).await?;
    site.api().await?.create(count, endpoints).await?;
    let agent = site.start_agent(place::api()).await?;
    let all = label(count, endpoints);
    Row::new(
        format!("{all}: start of the agent to all in force"),
        agent.start.as_secs_f64(),
        "s",
    )
    .must(Bound::AtMost(MANY_STARTED_MAX))
    .print()?;
    memory(&agent, &all, MANY_RESIDENT_MAX).await?;
    Kernel::open(&site.node()?.bpffs)?.check(count, endpoints)
}

fn label(services: u32, endpoints: u32) -> String {
    format!("{services} Services, {} endpoints", services * endpoints)
}

/// The rows of an agent's memory after its start. The kernel's maps that it has mapped count, too.
async fn memory(agent: &Agent, all: &str, most: f64) -> Result<()> {
    tokio::time::sleep(SETTLE).await;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let after = megabytes(agent.counters().resident()?);
    Row::new(format!("{all}: resident memory"), after, "MB")
        .must(Bound::AtMost(most))
        .print()?;
    let peak = megabytes(agent.counters().resident_peak()?);
    let name = format!("{all}: highest resident memory, and that afterwards");
    Row::new(name, peak, "MB")
        .against(after)
        .must(Bound::RatioAtMost(PEAK_MAX))
        .print()
}

/// The time from a request to the API until the kernel has the change, one change at a time.
async fn changes(options: &Options, api: &Arc<Api>, kernel: &Kernel) -> Result<()> {
    let mut visible = Vec::new();
    let mut answered = Vec::new();
    let began = Instant::now();
    for number in 0..CHANGES {
        // No two in a row have neighbouring names.
        let (service, turn) = (number * 7 % options.services, 1 + number);
        let sent = Instant::now();
        let change = tokio::spawn({
            let (api, endpoints) = (Arc::clone(api), options.endpoints);
            async move {
                api.change(service, endpoints, turn).await?;
                anyhow::Ok(sent.elapsed())
            }
        });
        let seen = tokio::task::block_in_place(|| kernel.await_turn(service, turn));
        let took = change.await??;
        let seen = seen?.duration_since(sent);
        visible.push(seen);
        answered.push(took);
        tokio::time::sleep(CHANGE_PAUSE).await;
    }
    let sample = |times| Sample::new(times, began.elapsed(), Duration::ZERO);
    let (visible, answered) = (sample(visible), sample(answered));
    for (name, share, most) in [
        ("p50", 0.5, VISIBLE_P50_MAX),
        ("p99", 0.99, VISIBLE_P99_MAX),
    ] {
        let ms = visible.latency_us(share) / 1e3;
        Row::new(
            format!("request to the API to its change in the kernel, {name}"),
            ms,
            "ms",
        )
        .must(Bound::AtMost(most))
        .print()?;
    }
    let ms = answered.latency_us(0.5) / 1e3;
    Row::new("request to the API to its answer, p50", ms, "ms").print()
}

/// The agent's CPU time under many changes of endpoints, all of which must reach the kernel.
async fn churn(options: &Options, (api, kernel): (&Api, &Kernel), agent: &Agent) -> Result<()> {
    let counters = agent.counters();
    let (cpu, began) = (counters.cpu()?, Instant::now());
    let parts = CHURN_RATE / CHURN_PART;
    let mut pace = interval(Duration::from_secs(1) / parts);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let total = u32::try_from(CHURN.as_secs())? * CHURN_RATE;
    let mut number = 0;
    let turn = |number: u32| CHANGES + 1 + number;
    while number < total {
        pace.tick().await;
        let part = number..number + CHURN_PART;
        let sent = part
            .map(|number| api.change(number % options.services, options.endpoints, turn(number)));
        try_join_all(sent).await?;
        number += CHURN_PART;
    }
    let took = began.elapsed();
    for number in total.saturating_sub(options.services)..total {
        let service = number % options.services;
        tokio::task::block_in_place(|| kernel.await_turn(service, turn(number)))?;
    }
    let percent = percent(counters, cpu, took)?;
    let rate = f64::from(total) / took.as_secs_f64();
    Row::new("changes of endpoints at the API", rate, "/s")
        .must(Bound::AtLeast(CHURN_SHARE_MIN * f64::from(CHURN_RATE)))
        .print()?;
    Row::new("CPU of the agent meanwhile", percent, "% of a core")
        .must(Bound::AtMost(CHURN_MAX))
        .print()
}

/// The part of a core that a process has used since its CPU time was `before`, in this time.
fn percent(process: Process, before: Duration, time: Duration) -> Result<f64> {
    let used = process.cpu()?.checked_sub(before);
    let used = used.context("a CPU time went back")?;
    Ok(100.0 * used.as_secs_f64() / time.as_secs_f64())
}

/// The rows of an agent without changes. It starts again, by way of the relay, and adopts what the one before has programmed.
async fn idle(options: &Options, site: &Site<'_>) -> Result<()> {
    let relay = Relay::start(site.node()?, place::api())?;
    let agent = site.start_agent(relay.address).await?;
    tokio::time::sleep(SETTLE).await;
    let counters = agent.counters();
    let (cpu, requests) = (counters.cpu()?, relay.requests());
    let length = Duration::from_secs(options.idle_seconds);
    tokio::time::sleep(length).await;
    let percent = percent(counters, cpu, length)?;
    Row::new(
        "CPU of an idle agent, with bookmarks",
        percent,
        "% of a core",
    )
    .must(Bound::AtMost(IDLE_MAX))
    .print()?;
    Row::new("open watches of a node", relay.open() as f64, "")
        .must(Bound::AtMost(WATCHES_MAX))
        .print()?;
    let polls = (relay.requests() - requests) as f64;
    Row::new("requests of an idle node", polls, "")
        .must(Bound::AtMost(0.0))
        .print()
}

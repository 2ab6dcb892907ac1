//! Many sleeping apps: the memory of the control plane, what it costs while nothing happens, and its start.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_cluster::{Client, Object};
use dormouse_rows::sample::median;
use dormouse_rows::{Bound, Row};
use k8s_openapi::api::core::v1::Pod;

use super::{Options, folder};
use crate::app::{self, Fleet};
use crate::control::{self, Server, Site};
use crate::node::Nodes;

/// Time after a start until memory is read and idling begins: what the start allocated is given back.
const SETTLE: Duration = Duration::from_secs(5);
/// Time for which an idle process is observed.
const IDLE: Duration = Duration::from_secs(20);
/// Starts of which the median is reported.
const STARTS: u32 = 3;
/// Longest time from a start to its first wake.
const WAKE_LIMIT: Duration = Duration::from_mins(2);
/// Interval of wakes and of looks for the pod meanwhile.
const WAKE_INTERVAL: Duration = Duration::from_millis(20);
const MB: f64 = 1e6;

/// The bounds of the memory of this many apps, in MB beyond that of an empty control plane.
pub(super) struct Bounds {
    /// Activator, controller, fleet, scheduler and API.
    pub(super) apart: f64,
    /// With the store.
    pub(super) whole: f64,
}

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let bounds = Bounds {
        apart: 40.0,
        whole: 250.0,
    };
    let up = memory(site, options.apps, bounds).await?;
    idle(options.apps, &up).await?;
    up.stop().await?;
    start(site, options.apps).await
}

/// Fills the store, prints the rows about memory, and returns the running control plane.
pub(super) async fn memory(site: Site<'_>, apps: u32, bounds: Bounds) -> Result<Server> {
    let [empty_apart, empty_whole] = [apart(site).await?, whole(site).await?.0];
    let (store, client) = site.store().await?;
    Fleet::usual(0, apps).put(&client).await?;
    store.stop().await?;
    let name = format!("{apps} sleeping apps: memory of");
    let apart = apart(site).await?;
    Row::new(
        format!("{name} `dormouse up --without store`, over an empty one"),
        (apart - empty_apart) / MB,
        "MB",
    )
    .must(Bound::AtMost(bounds.apart))
    .print()?;
    let (whole, up) = whole(site).await?;
    Row::new(
        format!("{name} `dormouse up` with its store, over an empty one"),
        (whole - empty_whole) / MB,
        "MB",
    )
    .must(Bound::AtMost(bounds.whole))
    .print()?;
    Row::new("an empty `dormouse up`", empty_whole / MB, "MB").print()?;
    Ok(up)
}

/// Resident bytes of `dormouse up` without its store.
pub(super) async fn apart(site: Site<'_>) -> Result<f64> {
    let (apart, _client) = site.apart().await?;
    tokio::time::sleep(SETTLE).await;
    let resident = apart.up.process.resident()? as f64;
    apart.stop().await?;
    Ok(resident)
}

/// Resident bytes of `dormouse up`.
pub(super) async fn together(site: Site<'_>) -> Result<f64> {
    let (resident, up) = whole(site).await?;
    up.stop().await?;
    Ok(resident)
}

/// Resident bytes of `dormouse up`, and its process.
async fn whole(site: Site<'_>) -> Result<(f64, Server)> {
    let up = site.up()?;
    up.listens(site.folder).await?;
    tokio::time::sleep(SETTLE).await;
    Ok((up.process.resident()? as f64, up))
}

async fn idle(apps: u32, up: &Server) -> Result<()> {
    let (cpu, switches) = (up.process.cpu()?, up.process.switches()?);
    let began = Instant::now();
    tokio::time::sleep(IDLE).await;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = up.process.cpu()?.saturating_sub(cpu).as_secs_f64();
    let switches = up.process.switches()?.saturating_sub(switches) as f64;
    let name = format!("{apps} sleeping apps: idle `dormouse up`");
    Row::new(format!("{name}, CPU"), 100.0 * cpu / seconds, "% of a core")
        .must(Bound::AtMost(0.5))
        .print()?;
    Row::new(
        format!("{name}, context switches"),
        switches / seconds,
        "/s",
    )
    .must(Bound::AtMost(10.0))
    .print()
}

/// Starts the control plane several times, each time until the first pod after a wake is written.
async fn start(site: Site<'_>, apps: u32) -> Result<()> {
    let mut seconds = Vec::new();
    for number in 0..STARTS {
        let up = site.up()?;
        let woken = woken(number).await;
        seconds.push(woken?.duration_since(up.started).as_secs_f64());
        up.stop().await?;
    }
    Row::new(
        format!("{apps} sleeping apps: from the start of `dormouse up` to the first wake"),
        median(&seconds, |seconds| *seconds),
        "s",
    )
    .must(Bound::AtMost(3.0))
    .print()
}

/// Wakes the app with this number, again and again until its pod is written; returns that time.
async fn woken(number: u32) -> Result<Instant> {
    let client = control::client().await?;
    let nodes = Nodes::start(1)?;
    let vip = app::vip(number);
    let app = Fleet::usual(0, number + 1).key(vip);
    let pods = format!("{}{}/{}-", Pod::PREFIX, app.namespace, app.name);
    let written = async {
        while !exists(&client, &pods).await {
            // A node without a stream takes no command: the queue is full before control answers.
            let wake = nodes.wake(std::iter::once(vip));
            drop(tokio::time::timeout(WAKE_INTERVAL, wake).await);
            tokio::time::sleep(WAKE_INTERVAL).await;
        }
        Instant::now()
    };
    let written = tokio::time::timeout(WAKE_LIMIT, written).await;
    written.context("no pod was written after a start")
}

async fn exists(client: &Client, prefix: &str) -> bool {
    let found = client.range(prefix, 0).await;
    found.is_ok_and(|(pods, _)| !pods.is_empty())
}

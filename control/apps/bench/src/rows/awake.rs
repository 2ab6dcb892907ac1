//! What awake apps cost the control plane while their load does not change.

use std::time::{Duration, Instant};

use anyhow::Result;
use dormouse_rows::{Bound, Row};

use super::{Options, folder};
use crate::app::Fleet;
use crate::control::{Apart, Site};
use crate::node::Nodes;
use crate::watch::Watch;

/// Nodes with awake apps.
pub(super) const NODES: u16 = 1_000;
/// Awake apps.
const APPS: Fleet = Fleet {
    direct: true,
    ..Fleet::usual(0, 10_000)
};
/// Longest time until all apps are awake.
const AWAKE_LIMIT: Duration = Duration::from_mins(2);
/// Time after that until the measurement: what follows the wakes is over.
const SETTLE: Duration = Duration::from_secs(5);
/// Time of the measurement.
const TIME: Duration = Duration::from_secs(15);

/// A control plane with its store apart, nodes, and apps that all are awake.
pub(super) struct Awake {
    pub(super) apart: Apart,
    pub(super) nodes: Nodes,
    pub(super) watch: Watch,
}

impl Awake {
    /// Wakes the apps. Each has one connection, which keeps it awake.
    pub(super) async fn start(site: Site<'_>, fleet: Fleet) -> Result<Self> {
        let (store, client) = site.store().await?;
        fleet.put(&client).await?;
        store.stop().await?;
        let (apart, client) = site.apart().await?;
        let watch = Watch::start(&client).await?;
        let nodes = Nodes::open(NODES).await?;
        nodes.load(fleet.vips()).await?;
        nodes.wake(fleet.vips()).await?;
        let count = fleet.count as usize;
        watch
            .until("all apps are awake", AWAKE_LIMIT, |seen| {
                seen.ready() >= count
            })
            .await?;
        tokio::time::sleep(SETTLE).await;
        Ok(Self {
            apart,
            nodes,
            watch,
        })
    }
}

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let awake = Awake::start(options.site(&folder), APPS).await?;
    let process = awake.apart.up.process;
    let (before, began) = (process.cpu()?, Instant::now());
    tokio::time::sleep(TIME).await;
    let cpu = process.cpu()?.saturating_sub(before).as_secs_f64();
    Row::new(
        format!(
            "{} awake apps on {NODES} nodes, one connection each: CPU of control without store",
            APPS.count
        ),
        100.0 * cpu / began.elapsed().as_secs_f64(),
        "% of a core",
    )
    .must(Bound::AtMost(10.0))
    .print()
}

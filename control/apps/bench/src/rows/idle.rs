//! The memory of control for idle streams: over TLS, and in plain text.

use std::time::Duration;

use anyhow::Result;
use dormouse_rows::{Bound, Row};
use tokio::runtime::Handle;

use super::{Options, folder};
use crate::certificates::Certificates;
use crate::control::Server;
use crate::node::{self, Nodes};

/// Streams of each measurement.
const STREAMS: u16 = 2_000;
/// Time until memory is read: what the start and the handshakes have allocated is given back.
const SETTLE: Duration = Duration::from_secs(15);
const KB: f64 = 1e3;

pub(super) async fn run(options: &Options) -> Result<()> {
    let [plain, secured] = [plain(options).await?, secured(options).await?];
    let name = format!("memory of control for an idle stream, of {STREAMS}");
    Row::new(
        format!("{name}: over TLS, and in plain text"),
        secured,
        "kB",
    )
    .against(plain)
    .print()?;
    Row::new(
        format!("{name}: over TLS, beyond plain text"),
        secured - plain,
        "kB",
    )
    .must(Bound::AtMost(20.0))
    .print()
}

async fn plain(options: &Options) -> Result<f64> {
    let folder = folder()?;
    let site = options.site(&folder);
    let up = site.up()?;
    up.listens(site.folder).await?;
    each(up, async || Nodes::start(STREAMS)).await
}

async fn secured(options: &Options) -> Result<f64> {
    let folder = folder()?;
    let site = options.site(&folder);
    let up = site.secured(&[]).await?;
    let certificates = Certificates::of(site)?;
    let targets = (0..STREAMS).map(|number| certificates.node(&node::name(number)));
    let targets = targets.collect::<Result<Vec<_>>>()?;
    each(up, async || {
        Ok(Nodes::at(targets.iter().cloned(), &Handle::current()))
    })
    .await
}

/// Resident kilobytes for each stream.
async fn each(up: Server, start: impl AsyncFn() -> Result<Nodes>) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    let before = up.process.resident()? as f64;
    let nodes = start().await?;
    nodes.are_open().await?;
    tokio::time::sleep(SETTLE).await;
    let after = up.process.resident()? as f64;
    drop(nodes);
    up.stop().await?;
    Ok((after - before) / f64::from(STREAMS) / KB)
}

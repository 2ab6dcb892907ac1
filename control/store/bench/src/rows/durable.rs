//! The durability modes on a disk: rates at full load, and the latency of one put that is synced.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Options, Turns};
use crate::load::{FULL, SINGLE};
use crate::process::{self, Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::{Sample, median};
use crate::work::Put;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Largest latency of a synced put beyond the no-op server's and one fdatasync, in microseconds.
const BEYOND_US: f64 = 50.0;
/// Syncs whose median is taken.
const SYNCS: usize = 200;
/// Each mode that is compared with `buffered`, and its least rate in percent of that.
const MODES: [(&str, f64); 2] = [("os", 90.0), ("fsync", 70.0)];

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = process::folder_on_disk()?;
    rates(options, folder.path()).await?;
    one_synced(options, folder.path()).await
}

async fn start(folder: &Path, mode: &'static str) -> Result<Server> {
    let folder = folder.join(mode);
    Server::start(&Kind::Durable { folder, mode }, 2).await
}

async fn rates(options: &Options, folder: &Path) -> Result<()> {
    let mut servers = vec![start(folder, "buffered").await?];
    for (mode, _) in MODES {
        servers.push(start(folder, mode).await?);
    }
    let put = || Put::new_keys(VALUE_BYTES);
    let turns = Turns::connect(servers, FULL, put).await?;
    let samples = turns.run(options).await?;
    let rates: Vec<f64> = samples
        .iter()
        .map(|side| median(side, Sample::rate))
        .collect();
    let buffered = rates.first().copied().unwrap_or_default();
    Row::new("put 1 KiB, mode buffered: rate", buffered, "/s").print()?;
    for ((mode, least), rate) in MODES.iter().zip(rates.iter().skip(1)) {
        let name = format!("put 1 KiB, mode {mode}: rate, of buffered");
        Row::new(name, 100.0 * rate / buffered, "%")
            .must(Bound::AtLeast(*least))
            .print()?;
    }
    Ok(())
}

async fn one_synced(options: &Options, folder: &Path) -> Result<()> {
    let noop = options.peer(2, VALUE_BYTES).await?;
    let synced = Server::start(
        &Kind::Durable {
            folder: folder.join("one"),
            mode: "fsync",
        },
        2,
    )
    .await?;
    let put = || Put::new_keys(VALUE_BYTES);
    let turns = Turns::connect(vec![noop, synced], SINGLE, put).await?;
    let samples = turns.run(options).await?;
    let p50: Vec<f64> = samples
        .iter()
        .map(|side| median(side, |sample| sample.latency_us(0.5)))
        .collect();
    let sync = sync_us(folder)?;
    Row::new("fdatasync of 1 KiB: p50", sync, "µs").print()?;
    if let [noop, synced] = p50[..] {
        let name = "put, one in flight, mode fsync: p50 beyond the no-op's and one fdatasync";
        Row::new(name, synced - noop - sync, "µs")
            .must(Bound::AtMost(BEYOND_US))
            .print()?;
    }
    Ok(())
}

/// The median time of an appended kilobyte with fdatasync, in microseconds.
fn sync_us(folder: &Path) -> Result<f64> {
    let mut file = File::create(folder.join("sync")).context("failed to create a file")?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&[b'v'; VALUE_BYTES])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok(median(&times, Duration::as_secs_f64) * 1e6)
}

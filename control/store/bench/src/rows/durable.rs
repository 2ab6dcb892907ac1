//! The durability modes on a disk: rates at full load, and the latency of one put that is synced.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Options, Turns};
use crate::load::FULL;
use crate::process::{self, Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::{Sample, median, ratio};
use crate::work::{KEY_BYTES, Put, Work};

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Largest latency of a synced put beyond the no-op server's and one fdatasync, in microseconds.
const BEYOND_US: f64 = 50.0;
/// Synced puts for each round of other rows.
const TURNS: usize = 50;
/// Bytes of a put's record in the journal: value, key, revision, frame.
const RECORD_BYTES: usize = VALUE_BYTES + KEY_BYTES + 20;
/// Bytes of the preallocated file: records of more rounds than a run has.
const FILE_BYTES: usize = 16 << 20;
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
    let Some((buffered, modes)) = samples.split_first() else {
        return Ok(());
    };
    let rate = median(buffered, Sample::rate);
    Row::new("put 1 KiB, mode buffered: rate", rate, "/s").print()?;
    for ((mode, least), side) in MODES.iter().zip(modes) {
        let name = format!("put 1 KiB, mode {mode}: rate, of buffered");
        Row::new(name, 100.0 * ratio([side, buffered], Sample::rate), "%")
            .must(Bound::AtLeast(*least))
            .print()?;
    }
    Ok(())
}

/// Puts and syncs one by one in turns: other load on the disk changes its speed from second to second.
async fn one_synced(options: &Options, folder: &Path) -> Result<()> {
    let noop = options.peer(2, VALUE_BYTES).await?;
    let synced = start(&folder.join("one"), "fsync").await?;
    let put = Put::new_keys(VALUE_BYTES);
    let (mut noop_kv, mut synced_kv) = (noop.kv().await?, synced.kv().await?);
    let (preallocated, growing) = (preallocated(folder)?, create(folder, "growing")?);
    let mut turns = Vec::new();
    for _ in 0..options.rounds * TURNS {
        turns.push(Turn {
            noop: us(put.once(&mut noop_kv)).await?,
            synced: us(put.once(&mut synced_kv)).await?,
            in_place: us(async { write_synced(&preallocated) }).await?,
            growing: us(async { write_synced(&growing) }).await?,
        });
    }
    let row = |name, figure: fn(&Turn) -> f64| Row::new(name, median(&turns, figure), "µs");
    let name = "fdatasync of an appended record in a growing file: p50";
    row(name, |turn| turn.growing).print()?;
    let name = "fdatasync of an equal write into a preallocated file: p50";
    row(name, |turn| turn.in_place).print()?;
    row("put, one in flight, mode fsync: p50", |turn| turn.synced)
        .against(median(&turns, |turn| turn.noop))
        .print()?;
    let name = "the same: p50 beyond the no-op's and one fdatasync of a preallocated file";
    row(name, |turn| turn.synced - turn.noop - turn.in_place)
        .must(Bound::AtMost(BEYOND_US))
        .print()
}

/// The times of one put at each server and of one sync of each file, in microseconds.
struct Turn {
    noop: f64,
    synced: f64,
    in_place: f64,
    growing: f64,
}

async fn us(work: impl Future<Output = Result<()>>) -> Result<f64> {
    let began = Instant::now();
    work.await?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

fn create(folder: &Path, name: &str) -> Result<File> {
    File::create(folder.join(name)).context("failed to create a file")
}

/// A file whose blocks are written and synced, positioned at its start.
fn preallocated(folder: &Path) -> Result<File> {
    let mut file = create(folder, "preallocated")?;
    file.write_all(&vec![0; FILE_BYTES])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Writes a record after the one before, with fdatasync.
fn write_synced(mut file: &File) -> Result<()> {
    file.write_all(&[b'v'; RECORD_BYTES])?;
    file.sync_data()?;
    Ok(())
}

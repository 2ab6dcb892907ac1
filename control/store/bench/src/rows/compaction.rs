//! A compaction of many revisions, and the latency of puts meanwhile.

use std::time::Duration;

use anyhow::Result;

use super::Options;
use crate::load::{self, Load, Shape};
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::{Sample, median};
use crate::work::{self, Put};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Revisions that are compacted for each key.
const REVISIONS: u64 = 10;
/// The store's metric: the longest time for which a slice of a compaction held the lock, in seconds.
const HELD: &str = "dormouse_store_compaction_lock_seconds_max";
/// The store's metric: the same without the time in which the kernel ran other threads.
const HELD_CPU: &str = "dormouse_store_compaction_lock_cpu_seconds_max";
/// Puts before the measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// Puts in flight.
const PUTS: Shape = Shape {
    connections: 1,
    in_flight: 4,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    let mut server = Server::start(&Kind::Store, 2).await?;
    let (mut beside, mut without) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.div_ceil(2) {
        let round = Round::run(&server, options.keys).await?;
        beside.push(round.beside);
        without.push(round.without);
    }
    let name = format!(
        "put beside a compaction of {} revisions, and without",
        options.keys
    );
    let latency = |share| move |sample: &Sample| sample.latency_us(share) / 1e3;
    let sides = [&beside[..], &without];
    Row::compared(format!("{name}: p99.9"), "ms", sides, latency(0.999))
        .must(Bound::RatioAtMost(1.5))
        .print()?;
    Row::compared(format!("{name}: longest"), "ms", sides, latency(1.0)).print()?;
    let took = median(&beside, |sample| sample.elapsed.as_secs_f64() * 1e3);
    Row::new("the same: the compaction's own time", took, "ms").print()?;
    let held = server.metric(HELD).await? * 1e3;
    let name = "the same: longest time for which a compaction holds writers";
    Row::new(name, held, "ms")
        .must(Bound::AtMost(2.0))
        .print()?;
    let cpu = server.metric(HELD_CPU).await? * 1e3;
    Row::new("the same, in which its thread ran", cpu, "ms").print()
}

/// Puts beside a compaction, and for the same time without one.
struct Round {
    beside: Sample,
    without: Sample,
}

impl Round {
    async fn run(server: &Server, versions: u64) -> Result<Self> {
        let keys = versions / REVISIONS;
        for _ in 0..REVISIONS {
            load::fill(server, keys, VALUE_BYTES).await?;
        }
        let puts = Load::connect(server, PUTS, Put::among(keys, VALUE_BYTES)).await?;
        puts.run(server, WARM_UP).await?;
        let compaction = work::compact(server.kv().await?);
        let (beside, _) = puts.beside(server, compaction).await?;
        let without = puts.run(server, beside.elapsed).await?;
        Ok(Self { beside, without })
    }
}

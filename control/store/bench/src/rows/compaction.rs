//! A compaction of many revisions, and the latency of puts meanwhile.

use anyhow::{Context, Result};

use super::Options;
use crate::load::{self, Load, Shape};
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::Sample;
use crate::work::{self, Put};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Revisions that are compacted for each key.
const REVISIONS: u64 = 10;
/// Puts in flight.
const PUTS: Shape = Shape {
    connections: 1,
    in_flight: 4,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    let server = Server::start(&Kind::Store, 2).await?;
    let keys = options.keys / REVISIONS;
    for _ in 0..REVISIONS {
        load::fill(&server, keys, VALUE_BYTES).await?;
    }
    let puts = Load::connect(&server, PUTS, Put::among(keys, VALUE_BYTES)).await?;
    let before = puts.run(&server, options.time()).await?;
    let mut kv = server.kv().await?;
    let compaction = work::compact(&mut kv);
    let (during, compacted) = futures::join!(puts.run_cold(&server, options.time()), compaction);
    let took = compacted.context("the compaction failed")?;
    report(options.keys, &before, &during?)?;
    Row::new("the compaction's own time", took.as_secs_f64() * 1e3, "ms").print()
}

fn report(versions: u64, before: &Sample, during: &Sample) -> Result<()> {
    let name = format!("put beside a compaction of {versions} versions, and without");
    Row::new(
        format!("{name}: p99.9"),
        during.latency_us(0.999) / 1e3,
        "ms",
    )
    .against(before.latency_us(0.999) / 1e3)
    .must(Bound::RatioAtMost(1.5))
    .print()?;
    Row::new(
        format!("{name}: longest"),
        during.latency_us(1.0) / 1e3,
        "ms",
    )
    .against(before.latency_us(1.0) / 1e3)
    .print()
}

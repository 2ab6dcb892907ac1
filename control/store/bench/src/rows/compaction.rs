//! A compaction of many revisions, and the latency of puts meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};

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
/// Puts in flight.
const PUTS: Shape = Shape {
    connections: 1,
    in_flight: 4,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    let options = &options.for_tails();
    let mut server = Server::start(&Kind::Store, 2).await?;
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        rounds.push(Round::run(&server, options).await?);
    }
    report(options.keys, &rounds)?;
    let held = server.metric(HELD).await?;
    Row::new(
        "the same: longest time for which a compaction holds writers",
        held * 1e3,
        "ms",
    )
    .must(Bound::AtMost(2.0))
    .print()
}

/// Puts without and with a compaction.
struct Round {
    before: Sample,
    during: Sample,
    compaction: Duration,
}

impl Round {
    async fn run(server: &Server, options: &Options) -> Result<Self> {
        let keys = options.keys / REVISIONS;
        for _ in 0..REVISIONS {
            load::fill(server, keys, VALUE_BYTES).await?;
        }
        let puts = Load::connect(server, PUTS, Put::among(keys, VALUE_BYTES)).await?;
        let before = puts.run(server, options.time()).await?;
        let mut kv = server.kv().await?;
        let compaction = work::compact(&mut kv);
        let (during, compaction) =
            futures::join!(puts.run_cold(server, options.time()), compaction);
        Ok(Self {
            before,
            during: during?,
            compaction: compaction.context("the compaction failed")?,
        })
    }
}

fn report(versions: u64, rounds: &[Round]) -> Result<()> {
    let latency = |share, side: fn(&Round) -> &Sample| {
        median(rounds, |round| side(round).latency_us(share) / 1e3)
    };
    let name = format!("put beside a compaction of {versions} revisions, and without");
    for (what, share, bound) in [
        ("p99.9", 0.999, Some(Bound::RatioAtMost(1.5))),
        ("longest", 1.0, None),
    ] {
        let row = Row::new(
            format!("{name}: {what}"),
            latency(share, |round| &round.during),
            "ms",
        )
        .against(latency(share, |round| &round.before));
        match bound {
            Some(bound) => row.must(bound).print()?,
            None => row.print()?,
        }
    }
    let took = median(rounds, |round| round.compaction.as_secs_f64() * 1e3);
    Row::new("the same: the compaction's own time", took, "ms").print()
}

//! Counts and lists of a million keys in a loop, and the latency of puts beside them.

use anyhow::{Context, Result};

use super::Options;
use crate::load::{self, Load, Shape};
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::{Sample, beyond};
use crate::work::{Count, List, Put};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Keys of a page.
const PAGE: u64 = 10_000;
/// Largest p99 of a put beyond the one at the no-op server, in milliseconds.
const BEYOND_MS: f64 = 2.0;
/// Reads in flight.
const LOOP: Shape = Shape {
    connections: 1,
    in_flight: 1,
};
/// Puts in flight.
const PUTS: Shape = Shape {
    connections: 1,
    in_flight: 4,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    let options = &options.for_tails();
    let noop = options.peer(2, VALUE_BYTES).await?;
    let store = Server::start(&Kind::Store, 2).await?;
    load::fill(&noop, options.keys, VALUE_BYTES).await?;
    load::fill(&store, options.keys, VALUE_BYTES).await?;
    let (mut at_noop, mut at_store) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        at_noop.push(puts_beside_reads(&noop, options).await?);
        at_store.push(puts_beside_reads(&store, options).await?);
    }
    let p99 = |sample: &Sample| sample.latency_us(0.99) / 1e3;
    let sides = [&at_store[..], &at_noop];
    let name = format!("put beside counts and lists of {} keys: p99", options.keys);
    Row::compared(name, "ms", sides, p99).print()?;
    Row::new("the same beyond the no-op's", beyond(sides, p99), "ms")
        .must(Bound::AtMost(BEYOND_MS))
        .print()
}

/// Puts while one client counts all keys and another one lists them in pages, each in a loop.
async fn puts_beside_reads(server: &Server, options: &Options) -> Result<Sample> {
    let keys = options.keys;
    let count = Load::connect(server, LOOP, Count).await?;
    let pages = List {
        keys: keys.max(PAGE),
        limit: PAGE,
    };
    let pages = Load::connect(server, LOOP, pages).await?;
    let puts = Load::connect(server, PUTS, Put::among(keys, VALUE_BYTES)).await?;
    let time = options.time();
    let (puts, counts, pages) = futures::join!(
        puts.run(server, time),
        count.run(server, time),
        pages.run(server, time)
    );
    counts.context("the counts failed")?;
    pages.context("the lists failed")?;
    puts
}

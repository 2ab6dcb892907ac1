//! Pages of a list at full load: CPU time.

use anyhow::Result;

use super::{Options, Turns, worker_threads};
use crate::load::{self, Shape};
use crate::row::{Bound, Row};
use crate::sample::{Sample, beyond};
use crate::work::List;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Keys in the store.
const KEYS: u64 = 100_000;
/// Keys of a page.
const LIMIT: u64 = 500;
/// Half a megabyte a response: few are in flight.
const SHAPE: Shape = Shape {
    connections: 4,
    in_flight: 2,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    for threads in [1, 2] {
        run_with(options, threads).await?;
    }
    Ok(())
}

async fn run_with(options: &Options, threads: usize) -> Result<()> {
    let servers = options.servers(threads, VALUE_BYTES).await?;
    for server in &servers {
        load::fill(server, KEYS, VALUE_BYTES).await?;
    }
    let list = || List {
        keys: KEYS,
        limit: LIMIT,
    };
    let turns = Turns::connect(servers, SHAPE, list).await?;
    let samples = turns.run(options).await?;
    let [noop, store, etcd @ ..] = &samples[..] else {
        return Ok(());
    };
    let cpu = |sample: &Sample| sample.cpu_us() / 1e3;
    let name = format!(
        "range of 500 × 1 KiB among 100,000, {}",
        worker_threads(threads)
    );
    Row::compared(format!("{name}: server CPU"), "ms", [store, noop], cpu)
        .must(Bound::RatioAtMost(1.3))
        .print()?;
    let more = beyond([store, noop], cpu);
    Row::new("the same beyond the no-op's", more, "ms")
        .must(Bound::AtMost(0.5))
        .print()?;
    for etcd in etcd {
        Row::compared("the same: etcd's CPU", "ms", [etcd, noop], cpu).print()?;
    }
    Ok(())
}

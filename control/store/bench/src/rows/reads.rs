//! Pages of a list at full load: CPU time.

use anyhow::Result;

use super::{Options, Turns};
use crate::load::{self, Shape};
use crate::row::{Bound, Row};
use crate::sample::{Sample, median};
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
    let servers = options.servers(2, VALUE_BYTES).await?;
    for server in &servers {
        load::fill(server, KEYS, VALUE_BYTES).await?;
    }
    let list = || List {
        keys: KEYS,
        limit: LIMIT,
    };
    let samples = Turns::connect(servers, SHAPE, list)
        .await?
        .run(options)
        .await?;
    let cpu: Vec<f64> = samples
        .iter()
        .map(|side| median(side, Sample::cpu_us) / 1e3)
        .collect();
    if let [noop, store, ..] = cpu[..] {
        Row::new(
            "range of 500 × 1 KiB among 100,000: server CPU",
            store,
            "ms",
        )
        .against(noop)
        .must(Bound::RatioAtMost(1.3))
        .print()?;
        Row::new("the same beyond the no-op's", store - noop, "ms")
            .must(Bound::AtMost(0.5))
            .print()?;
    }
    if let Some(etcd) = cpu.get(2) {
        Row::new("the same: etcd's CPU", *etcd, "ms").print()?;
    }
    Ok(())
}

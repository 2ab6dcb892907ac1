//! One request at a time: latency.

use anyhow::Result;

use super::{Options, Turns};
use crate::load::SINGLE;
use crate::row::{Bound, Row};
use crate::sample::{Sample, median};
use crate::work::Put;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Largest latency beyond the no-op server's, in microseconds.
const BEYOND_US: f64 = 30.0;

pub(super) async fn run(options: &Options) -> Result<()> {
    let servers = options.servers(2, VALUE_BYTES).await?;
    let turns = Turns::connect(servers, SINGLE, || Put::new_keys(VALUE_BYTES)).await?;
    let samples = turns.run(options).await?;
    let p50: Vec<f64> = samples
        .iter()
        .map(|side| median(side, |sample: &Sample| sample.latency_us(0.5)))
        .collect();
    if let [noop, store, ..] = p50[..] {
        Row::new("put, one in flight: p50", store, "µs")
            .against(noop)
            .print()?;
        Row::new(
            "put, one in flight: p50 beyond the no-op's",
            store - noop,
            "µs",
        )
        .must(Bound::AtMost(BEYOND_US))
        .print()?;
    }
    if let Some(etcd) = p50.get(2) {
        Row::new("put, one in flight: etcd's p50", *etcd, "µs").print()?;
    }
    Ok(())
}

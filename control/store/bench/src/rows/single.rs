//! One request at a time: latency.

use anyhow::Result;

use super::{Options, Turns};
use crate::load::SINGLE;
use crate::row::{Bound, Row};
use crate::sample::{Sample, beyond};
use crate::work::Put;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Largest latency beyond the no-op server's, in microseconds.
const BEYOND_US: f64 = 30.0;

pub(super) async fn run(options: &Options) -> Result<()> {
    let servers = options.servers(2, VALUE_BYTES).await?;
    let turns = Turns::connect(servers, SINGLE, || Put::new_keys(VALUE_BYTES)).await?;
    let samples = turns.run(options).await?;
    let [noop, store, etcd @ ..] = &samples[..] else {
        return Ok(());
    };
    let p50 = |sample: &Sample| sample.latency_us(0.5);
    Row::compared("put, one in flight: p50", "µs", [store, noop], p50).print()?;
    let name = "put, one in flight: p50 beyond the no-op's";
    Row::new(name, beyond([store, noop], p50), "µs")
        .must(Bound::AtMost(BEYOND_US))
        .print()?;
    for etcd in etcd {
        Row::compared("put, one in flight: etcd's p50", "µs", [etcd, noop], p50).print()?;
    }
    Ok(())
}

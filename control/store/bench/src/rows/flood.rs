//! The lease flood: renewals of the leases of a million nodes as fast as the server answers.

use anyhow::Result;

use super::{Options, Turns};
use crate::load::FULL;
use crate::process::{Kind, Server};
use crate::row::Row;
use crate::sample::{Sample, median};
use crate::work::LeaseTxn;

/// Bytes of a lease.
const LEASE_BYTES: usize = 350;
/// The rate for which the CPU is given.
const RATE: f64 = 100_000.0;

pub(super) async fn run(options: &Options) -> Result<()> {
    let nodes = usize::try_from(options.keys)?;
    let servers = vec![Server::start(&Kind::Store, 2).await?];
    let lease = || LeaseTxn::new(nodes, LEASE_BYTES);
    let samples = Turns::connect(servers, FULL, lease)
        .await?
        .run(options)
        .await?;
    let store = samples.first().map_or(&[][..], Vec::as_slice);
    let rate = median(store, Sample::rate);
    let cores = median(store, Sample::cpu_us) * RATE / 1e6;
    Row::new(
        format!("lease flood of {nodes} nodes: renewals"),
        rate,
        "/s",
    )
    .print()?;
    Row::new(
        "lease flood: server CPU for 100,000 renewals a second",
        cores,
        "cores",
    )
    .print()?;
    let p99 = median(store, |sample| sample.latency_us(0.99) / 1e3);
    Row::new("lease flood: p99", p99, "ms").print()
}

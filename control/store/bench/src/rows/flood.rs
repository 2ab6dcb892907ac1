//! The lease flood: renewals of the leases of a million nodes as fast as the server answers.

use anyhow::Result;

use super::Options;
use crate::load::{FULL, Load};
use crate::process::{Kind, Server};
use crate::row::Row;
use crate::sample::{Sample, median};
use crate::work::LeaseTxn;

/// Bytes of a lease.
const LEASE_BYTES: usize = 350;
/// The rate for which the CPU is given.
const RATE: f64 = 100_000.0;

pub(super) async fn run(options: &Options) -> Result<()> {
    let options = &options.for_tails();
    let nodes = usize::try_from(options.keys)?;
    let server = Server::start(&Kind::Store, 2).await?;
    let work = LeaseTxn::new(nodes, LEASE_BYTES);
    work.create_all(&mut server.kv().await?).await?;
    let load = Load::connect(&server, FULL, work).await?;
    let mut samples = Vec::new();
    for _ in 0..options.rounds {
        samples.push(load.run(&server, options.time()).await?);
    }
    let rate = median(&samples, Sample::rate);
    let cores = median(&samples, Sample::cpu_us) * RATE / 1e6;
    let p99 = median(&samples, |sample| sample.latency_us(0.99) / 1e3);
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
    Row::new("lease flood: p99", p99, "ms").print()
}

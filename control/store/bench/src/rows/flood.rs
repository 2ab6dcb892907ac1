//! The lease flood: renewals of the leases of a million nodes as an open loop, at rising rates.

use std::time::Duration;

use anyhow::Result;

use super::Options;
use crate::load::{FULL, Load};
use crate::process::{Kind, Server};
use crate::row::{Row, say};
use crate::sample::Sample;
use crate::work::LeaseTxn;

/// Bytes of a lease.
const LEASE_BYTES: usize = 350;
/// The rate for which the CPU is given.
const RATE: f64 = 100_000.0;
/// The first rate, in renewals a second.
const FIRST: f64 = 2_000.0;
/// Each rate as a multiple of the one before.
const STEP: f64 = 1.25;
/// A rate is held if the p99 from the time at which a renewal is due does not exceed this.
const LATE_US: f64 = 50_000.0;
/// Measurements of a rate before it counts as not held: other load on the machine may disturb one.
const ATTEMPTS: usize = 2;
/// Time of a measurement, in multiples of that of other rows.
const TIMES: u32 = 4;

pub(super) async fn run(options: &Options) -> Result<()> {
    let nodes = usize::try_from(options.keys)?;
    let server = Server::start(&Kind::Store, 2).await?;
    let work = LeaseTxn::new(nodes, LEASE_BYTES);
    work.create_all(&mut server.kv().await?).await?;
    let load = Load::connect(&server, FULL, work).await?;
    let time = options.time() * TIMES;
    load.run_cold(&server, options.time()).await?;
    let mut highest = None;
    let mut rate = FIRST;
    while let Some(sample) = held(&load, &server, (time, rate)).await? {
        highest = Some((rate, sample));
        rate *= STEP;
    }
    report(nodes, highest)
}

/// The measurement at a rate, if it is held.
async fn held(
    load: &Load<LeaseTxn>,
    server: &Server,
    (time, rate): (Duration, f64),
) -> Result<Option<Sample>> {
    for _ in 0..ATTEMPTS {
        let sample = load.run_open(server, time, rate).await?;
        let p99 = sample.latency_us(0.99);
        say(&format!("lease flood at {rate:.0}/s: p99 {p99:.0} µs"));
        if p99 <= LATE_US {
            return Ok(Some(sample));
        }
    }
    Ok(None)
}

fn report(nodes: usize, highest: Option<(f64, Sample)>) -> Result<()> {
    let Some((rate, sample)) = highest else {
        return Row::noted("lease flood", "the lowest rate was not held").print();
    };
    let name = format!("lease flood of {nodes} nodes, open loop: highest rate held");
    Row::new(name, rate, "/s").print()?;
    let cores = sample.cpu_us() * RATE / 1e6;
    let name = "lease flood: server CPU for 100,000 renewals a second, at that rate";
    Row::new(name, cores, "cores").print()?;
    let p99 = sample.latency_us(0.99) / 1e3;
    Row::new(
        "lease flood: p99 from the time when due, at that rate",
        p99,
        "ms",
    )
    .print()
}

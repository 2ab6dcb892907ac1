//! Puts, lease transactions and gets at full load: CPU time and rate.

use anyhow::Result;

use super::{Options, Turns, worker_threads};
use crate::load::{self, FULL};
use crate::row::{Bound, Row};
use crate::sample::{Sample, ratio};
use crate::work::{Get, LeaseTxn, Put, Work};

/// Bytes of a value of puts and gets.
const VALUE_BYTES: usize = 1024;
/// Bytes of a lease.
const LEASE_BYTES: usize = 350;
/// Leases: each is renewed once before one is renewed twice.
const LEASES: usize = 100_000;
/// Keys among which gets choose.
const KEYS: u64 = 100_000;

/// The bounds of one kind of request.
struct Bounds {
    cpu_ratio: f64,
    /// Percent of the no-op server's rate.
    rate: Option<f64>,
}

const WRITES: Bounds = Bounds {
    cpu_ratio: 1.25,
    rate: Some(80.0),
};
const READS: Bounds = Bounds {
    cpu_ratio: 1.3,
    rate: None,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    for threads in [1, 2] {
        let put = || Put::new_keys(VALUE_BYTES);
        compare(options, ("put 1 KiB", threads, WRITES), 0, put).await?;
        let lease = || LeaseTxn::new(LEASES, LEASE_BYTES);
        compare(
            options,
            ("lease transaction 350 B", threads, WRITES),
            0,
            lease,
        )
        .await?;
        let get = || Get { keys: KEYS };
        compare(options, ("get 1 KiB", threads, READS), KEYS, get).await?;
    }
    Ok(())
}

/// Measures one kind of request on all servers, after putting this many keys.
async fn compare<W: Work>(
    options: &Options,
    (name, threads, bounds): (&str, usize, Bounds),
    keys: u64,
    work: impl Fn() -> W,
) -> Result<()> {
    let servers = options.servers(threads, VALUE_BYTES).await?;
    for server in servers.iter().filter(|_| keys > 0) {
        load::fill(server, keys, VALUE_BYTES).await?;
    }
    let turns = Turns::connect(servers, FULL, work).await?;
    let samples = turns.run(options).await?;
    let name = format!("{name}, {}", worker_threads(threads));
    report(&name, &samples, &bounds)
}

fn report(name: &str, samples: &[Vec<Sample>], bounds: &Bounds) -> Result<()> {
    let [noop, store, etcd @ ..] = samples else {
        return Ok(());
    };
    let sides = [&store[..], noop];
    Row::compared(format!("{name}: server CPU"), "µs", sides, Sample::cpu_us)
        .must(Bound::RatioAtMost(bounds.cpu_ratio))
        .print()?;
    for (what, share) in [("p50", 0.5), ("p99", 0.99)] {
        let latency = |sample: &Sample| sample.latency_us(share) / 1e3;
        Row::compared(format!("{name}: {what}"), "ms", sides, latency).print()?;
    }
    Row::compared(format!("{name}: rate"), "/s", sides, Sample::rate).print()?;
    let share = 100.0 * ratio(sides, Sample::rate);
    let share = Row::new(format!("{name}: rate, of the no-op's"), share, "%");
    match bounds.rate {
        Some(least) => share.must(Bound::AtLeast(least)).print()?,
        None => share.print()?,
    }
    for etcd in etcd {
        let name = format!("{name}: etcd's CPU");
        Row::compared(name, "µs", [etcd, noop], Sample::cpu_us).print()?;
    }
    Ok(())
}

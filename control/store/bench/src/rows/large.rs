//! One list and one delete of 500,000 keys, and the latency of puts beside them.

use anyhow::{Result, ensure};
use tonic::transport::Channel;

use super::Options;
use crate::load::{self, Load, Shape};
use crate::process::{Kind, Server};
use crate::proto::kv_client::KvClient;
use crate::row::Row;
use crate::sample::{Sample, median};
use crate::work::{self, List, Put, Work};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Keys among which puts alternate; few, so that a delete meets few that are new.
const PUT_KEYS: u64 = 1_000;
/// Puts in flight.
const PUTS: Shape = Shape {
    connections: 1,
    in_flight: 4,
};

pub(super) async fn run(options: &Options) -> Result<()> {
    let options = &options.for_tails();
    let keys = options.keys / 2;
    let noop = options.peer(2, VALUE_BYTES).await?;
    let store = Server::start(&Kind::Store, 2).await?;
    let put = || Put::among(PUT_KEYS, VALUE_BYTES);
    let at_noop = Load::connect(&noop, PUTS, put()).await?;
    let at_store = Load::connect(&store, PUTS, put()).await?;
    let mut lists = [Vec::new(), Vec::new()];
    let mut deletes = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        load::fill(&store, keys, VALUE_BYTES).await?;
        for (samples, (load, server)) in lists
            .iter_mut()
            .zip([(&at_store, &store), (&at_noop, &noop)])
        {
            let list = list(server.kv().await?, keys);
            samples.push(load.beside(server, list).await?.0);
        }
        let delete = delete(store.kv().await?, keys);
        let (beside, ()) = at_store.beside(&store, delete).await?;
        let without = at_store.run(&store, beside.elapsed).await?;
        work::compact(store.kv().await?).await?;
        let [besides, withouts] = &mut deletes;
        besides.push(beside);
        withouts.push(without);
    }
    let name =
        format!("put beside one list of {keys} keys, and at the no-op beside an equal answer");
    report(&name, &lists)?;
    let [at_store, at_noop] = &lists;
    Row::compared(
        "the same: time of the list",
        "ms",
        [at_store, at_noop],
        elapsed_ms,
    )
    .print()?;
    report(
        &format!("put beside a delete of {keys} keys, and without"),
        &deletes,
    )?;
    let [beside, _] = &deletes;
    Row::new(
        "the same: time of the delete",
        median(beside, elapsed_ms),
        "ms",
    )
    .print()
}

fn elapsed_ms(sample: &Sample) -> f64 {
    sample.elapsed.as_secs_f64() * 1e3
}

async fn list(mut kv: KvClient<Channel>, keys: u64) -> Result<()> {
    List { keys, limit: keys }.once(&mut kv).await
}

async fn delete(kv: KvClient<Channel>, keys: u64) -> Result<()> {
    let deleted = work::delete_all(kv).await?;
    ensure!(
        u64::try_from(deleted)? == keys,
        "{deleted} of {keys} keys were deleted"
    );
    Ok(())
}

/// Rows of the puts' latencies beside the request.
fn report(name: &str, [beside, peer]: &[Vec<Sample>; 2]) -> Result<()> {
    for (what, share) in [("p99", 0.99), ("longest", 1.0)] {
        let latency = |sample: &Sample| sample.latency_us(share) / 1e3;
        Row::compared(format!("{name}: {what}"), "ms", [beside, peer], latency).print()?;
    }
    Ok(())
}

//! Resident memory: of keys, of further revisions, and after deleting and compacting all.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Options;
use crate::load;
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::work::{self, KEY_BYTES};

/// Bytes of key and value.
const RECORD_BYTES: usize = 350;
/// Bytes of a value.
const VALUE_BYTES: usize = RECORD_BYTES - KEY_BYTES;
/// Resident memory beyond 1.2 times that of an empty store, once all is deleted and compacted.
const REST_BYTES: f64 = 50e6;
/// Longest time until the memory of what was deleted is given back.
const SHRINK_LIMIT: Duration = Duration::from_secs(30);
/// Interval of looks at the memory meanwhile.
const SHRINK_INTERVAL: Duration = Duration::from_millis(250);
const MB: f64 = 1e6;

pub(super) async fn run(options: &Options) -> Result<()> {
    for order in [Order::Ascending, Order::Scattered] {
        run_in(order, options.keys).await?;
    }
    Ok(())
}

/// The order in which keys are put.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Scattered,
}

impl Order {
    async fn fill(self, server: &Server, keys: u64) -> Result<()> {
        match self {
            Self::Ascending => load::fill(server, keys, VALUE_BYTES).await,
            Self::Scattered => load::fill_scattered(server, keys, VALUE_BYTES).await,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ascending => "in order",
            Self::Scattered => "in random order",
        }
    }
}

async fn run_in(order: Order, keys: u64) -> Result<()> {
    let server = Server::start(&Kind::Store, 2).await?;
    let empty = server.resident()? as f64;
    order.fill(&server, keys).await?;
    let first = server.resident()? as f64;
    order.fill(&server, keys).await?;
    let second = server.resident()? as f64;
    work::delete_all(server.kv().await?).await?;
    work::compact(server.kv().await?).await?;
    let most = 1.2 * empty + REST_BYTES;
    let after = shrunk(&server, most).await?;
    let name = order.name();
    let over_record = (first - empty) / keys as f64 - RECORD_BYTES as f64;
    let over_value = (second - first) / keys as f64 - VALUE_BYTES as f64;
    Row::new(
        format!("memory of {keys} keys × 350 B, put {name}, over key and value"),
        over_record,
        "B",
    )
    .must(Bound::AtMost(200.0))
    .print()?;
    Row::new(
        "the same: of a further revision, over its value",
        over_value,
        "B",
    )
    .must(Bound::AtMost(96.0))
    .print()?;
    Row::new(
        "the same: resident after deleting and compacting all",
        after / MB,
        "MB",
    )
    .against(second / MB)
    .must(Bound::AtMost(most / MB))
    .print()
}

/// Resident bytes: as soon as they are at most `most`, or after the longest time.
async fn shrunk(server: &Server, most: f64) -> Result<f64> {
    let shrinks = async {
        while server.resident()? as f64 > most {
            tokio::time::sleep(SHRINK_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(SHRINK_LIMIT, shrinks).await {
        ended.context("the server ended")?;
    }
    Ok(server.resident()? as f64)
}

//! Recovery after a kill, with the files in memory: the time until the first answer.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Options;
use crate::load::{self, FULL, Load};
use crate::process::{self, Kind, Server};
use crate::row::{Bound, Row, say};
use crate::sample::median;
use crate::work::{self, Put};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Versions of each key.
const VERSIONS: u64 = 2;
/// The part of the keys that single puts write: with all of them, etcd's part would take as long as all other rows.
const PUTS_SHARE: u64 = 4;
/// Kills and starts whose median is taken.
const STARTS: usize = 2;

pub(super) async fn run(options: &Options) -> Result<()> {
    run_after(Writes::Transactions, options.keys).await?;
    run_after(Writes::Puts, options.keys / PUTS_SHARE).await
}

/// The requests that wrote the recovered keys.
#[derive(Clone, Copy)]
enum Writes {
    /// Of 100 puts each.
    Transactions,
    /// One put each.
    Puts,
}

impl Writes {
    /// Puts each key once.
    async fn fill(self, server: &Server, keys: u64) -> Result<()> {
        if let Self::Transactions = self {
            return load::fill(server, keys, VALUE_BYTES).await;
        }
        let puts = Load::connect(server, FULL, Put::among(keys, VALUE_BYTES)).await?;
        puts.run_count(server, keys).await.map(drop)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Transactions => "in transactions of 100 puts",
            Self::Puts => "in single puts",
        }
    }
}

async fn run_after(writes: Writes, keys: u64) -> Result<()> {
    let name = format!(
        "recovery of {keys} keys with {VERSIONS} versions each, written {}",
        writes.name()
    );
    say(&name);
    let durable = |folder| Kind::Durable { folder, mode: "os" };
    let row = Row::new(name, recovery_s(writes, keys, durable).await?, "s");
    if !process::etcd_is_installed() {
        return row.print();
    }
    let etcd = recovery_s(writes, keys, Kind::EtcdAt).await?;
    row.against(etcd).must(Bound::RatioAtMost(0.25)).print()
}

/// The time from a kill to the first answer: the median of several starts of the same files.
async fn recovery_s(writes: Writes, keys: u64, kind: impl Fn(PathBuf) -> Kind) -> Result<f64> {
    let folder = process::folder_in_memory()?;
    let kind = kind(folder.path().join("data"));
    let mut server = Server::start(&kind, 2).await?;
    for _ in 0..VERSIONS {
        writes.fill(&server, keys).await?;
    }
    let mut times = Vec::new();
    for _ in 0..STARTS {
        server.kill().await?;
        let began = Instant::now();
        server = Server::start(&kind, 2).await?;
        times.push(began.elapsed());
    }
    let found = work::count(&mut server.kv().await?).await?;
    ensure!(u64::try_from(found)? == keys, "{found} keys are left");
    Ok(median(&times, Duration::as_secs_f64))
}

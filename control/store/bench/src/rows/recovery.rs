//! Recovery after a kill, with the files in memory: the time until the first answer.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::Options;
use crate::load;
use crate::process::{self, Kind, Server};
use crate::row::{Bound, Row};
use crate::work;

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Versions of each key.
const VERSIONS: u64 = 2;

pub(super) async fn run(options: &Options) -> Result<()> {
    let store = recovery_s(options, |folder| Kind::Durable { folder, mode: "os" }).await?;
    let keys = options.keys;
    let name = format!("recovery of {keys} keys with {VERSIONS} versions each");
    let row = Row::new(name, store, "s");
    if !process::etcd_is_installed() {
        return row.print();
    }
    let etcd = recovery_s(options, Kind::EtcdAt).await?;
    row.against(etcd).must(Bound::RatioAtMost(0.25)).print()
}

async fn recovery_s(options: &Options, kind: impl Fn(PathBuf) -> Kind) -> Result<f64> {
    let folder = process::folder_in_memory()?;
    let kind = kind(folder.path().join("data"));
    let server = Server::start(&kind, 2).await?;
    for _ in 0..VERSIONS {
        load::fill(&server, options.keys, VALUE_BYTES).await?;
    }
    server.kill().await?;
    let began = Instant::now();
    let server = Server::start(&kind, 2).await?;
    let elapsed = began.elapsed();
    let found = work::count(&mut server.kv().await?).await?;
    ensure!(
        u64::try_from(found)? == options.keys,
        "{found} keys are left"
    );
    Ok(elapsed.as_secs_f64())
}

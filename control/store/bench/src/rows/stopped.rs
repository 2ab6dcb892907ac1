//! Watchers that cost a put nothing: those that have stopped reading, and those on other keys.

use std::time::Duration;

use anyhow::Result;

use super::{Options, Turns};
use crate::load::{self, FULL};
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::Sample;
use crate::watchers::{self, Stream};
use crate::work::Put;

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Keys among which puts alternate.
const KEYS: u64 = 100_000;
/// Range watches on other keys.
const ELSEWHERE: u64 = 10_000;

/// Time without CPU time after which a server is idle.
const IDLE: Duration = Duration::from_millis(300);

pub(super) async fn run(options: &Options) -> Result<()> {
    let mut servers = Vec::new();
    for _ in 0..4 {
        servers.push(Server::start(&Kind::Store, 2).await?);
    }
    let mut open = Vec::new();
    for (server, count) in servers.iter().skip(1).zip([1, 20]) {
        for _ in 0..count {
            open.push(Stream::of_all(server).await?);
        }
    }
    for server in servers.iter().skip(3) {
        open.extend(watchers::elsewhere(server, ELSEWHERE).await?);
    }
    for server in &servers {
        load::fill(server, KEYS, VALUE_BYTES).await?;
        settle(server).await?;
    }
    let put = || Put::among(KEYS, VALUE_BYTES);
    let turns = Turns::connect(servers, FULL, put).await?;
    let samples = turns.run(options).await?;
    let Some((alone, beside)) = samples.split_first() else {
        return Ok(());
    };
    let names = [
        "1 stopped watcher",
        "20 stopped watchers",
        "10,000 range watches on other keys",
    ];
    for (name, beside) in names.iter().zip(beside) {
        let name = format!("put beside {name}, and without: server CPU");
        Row::compared(name, "µs", [beside, alone], Sample::cpu_us)
            .must(Bound::RatioAtMost(1.1))
            .print()?;
    }
    Ok(())
}

/// Waits until the server is idle: it has sent to each stopped watcher what the buffers of the connection take.
async fn settle(server: &Server) -> Result<()> {
    let mut before = None;
    while before != Some(server.cpu()?) {
        before = Some(server.cpu()?);
        tokio::time::sleep(IDLE).await;
    }
    Ok(())
}

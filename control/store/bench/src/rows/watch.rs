//! Ten watchers at the full rate of puts: CPU time for each event, beyond the puts' own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Options;
use crate::load::{FULL, Load};
use crate::process::{Kind, Server, etcd_is_installed};
use crate::row::{Bound, Row};
use crate::sample::median;
use crate::watchers::Stream;
use crate::work::{self, Put};

/// Bytes of a value.
const VALUE_BYTES: usize = 350;
/// Watchers, each on a connection of its own.
const WATCHERS: usize = 10;
/// Keys among which puts alternate.
const KEYS: u64 = 100_000;

pub(super) async fn run(options: &Options) -> Result<()> {
    let (us, rate) = per_event(Kind::Store, options).await?;
    Row::new("10 watchers at full rate: server CPU per event", us, "µs")
        .must(Bound::AtMost(1.2))
        .print()?;
    Row::new("10 watchers at full rate: events", rate, "/s").print()?;
    if etcd_is_installed() {
        let (us, rate) = per_event(Kind::Etcd, options).await?;
        Row::new("10 watchers at full rate: etcd's CPU per event", us, "µs").print()?;
        Row::new("10 watchers at full rate: etcd's events", rate, "/s").print()?;
    }
    Ok(())
}

/// Puts and the events that they made.
struct Watched {
    /// Of the puts and the events.
    cpu: Duration,
    puts: u64,
    events: u64,
    /// From the first put to the last event.
    elapsed: Duration,
}

impl Watched {
    fn rate(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }

    /// CPU time of an event in microseconds, if a put takes `put_us` without watchers.
    fn event_us(&self, put_us: f64) -> f64 {
        (self.cpu.as_secs_f64() * 1e6 - put_us * self.puts as f64) / self.events as f64
    }
}

/// The medians of the CPU time for each event, in microseconds, and of the events a second of all watchers.
async fn per_event(kind: Kind, options: &Options) -> Result<(f64, f64)> {
    let server = Server::start(&kind, 2).await?;
    let puts = Load::connect(&server, FULL, Put::among(KEYS, VALUE_BYTES)).await?;
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let alone = puts.run(&server, options.time()).await?;
        let watched = with_watchers(&server, &puts, options.time()).await?;
        rounds.push((watched.event_us(alone.cpu_us()), watched.rate()));
    }
    Ok((
        median(&rounds, |(us, _)| *us),
        median(&rounds, |(_, rate)| *rate),
    ))
}

async fn with_watchers(server: &Server, puts: &Load<Put>, time: Duration) -> Result<Watched> {
    let mut readers = Vec::new();
    for _ in 0..WATCHERS {
        readers.push(Stream::of_all(server).await?.read());
    }
    let (began, cpu) = (Instant::now(), server.cpu()?);
    let sample = puts.run_cold(server, time).await?;
    work::put_last(&mut server.kv().await?).await?;
    let mut events = 0;
    for reader in readers {
        events += reader.await.context("a watcher failed")??;
    }
    Ok(Watched {
        cpu: server.cpu_since(cpu)?,
        puts: sample.ops,
        events,
        elapsed: began.elapsed(),
    })
}

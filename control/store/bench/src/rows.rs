//! The rows of the report, in groups that can run alone.

mod compaction;
mod durable;
mod flood;
mod lists;
mod memory;
mod reads;
mod recovery;
mod single;
mod stopped;
mod unary;
mod watch;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::load::{Load, Shape};
use crate::process::{self, Kind, Server};
use crate::row::{Row, say};
use crate::sample::Sample;
use crate::work::Work;

/// Arguments of a run.
#[derive(Clone, Args)]
pub(crate) struct Options {
    /// Time of each measurement of one server, in seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Rounds; each measures every server once, and rows are medians
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Keys of the rows about large stores
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Compare with the store of another build of this program instead of the no-op server
    #[arg(long, value_name = "PROGRAM")]
    baseline: Option<PathBuf>,
    /// Run only these groups of rows
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<String>,
}

/// Time of a measurement of which a high percentile is reported, in multiples of the others.
const TAIL: f64 = 6.0;

impl Options {
    /// Time of a measurement.
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The same for rows about tails: fewer and longer measurements, or ones of a store that takes long to fill.
    fn for_tails(&self) -> Self {
        Self {
            seconds: self.seconds * TAIL,
            rounds: self.rounds.div_ceil(3),
            ..self.clone()
        }
    }
}

/// The future of a group.
type Group<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
/// A group by name.
type Named = (&'static str, for<'a> fn(&'a Options) -> Group<'a>);

/// All groups, in the order of the report.
const GROUPS: [Named; 11] = [
    ("unary", |options| Box::pin(unary::run(options))),
    ("single", |options| Box::pin(single::run(options))),
    ("durable", |options| Box::pin(durable::run(options))),
    ("range", |options| Box::pin(reads::run(options))),
    ("lists", |options| Box::pin(lists::run(options))),
    ("watch", |options| Box::pin(watch::run(options))),
    ("stopped", |options| Box::pin(stopped::run(options))),
    ("memory", |options| Box::pin(memory::run(options))),
    ("recovery", |options| Box::pin(recovery::run(options))),
    ("compaction", |options| Box::pin(compaction::run(options))),
    ("flood", |options| Box::pin(flood::run(options))),
];

/// Runs the groups and prints their rows.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let known: Vec<_> = GROUPS.iter().map(|(name, _)| *name).collect();
    for name in &options.only {
        let list = known.join(", ");
        ensure!(
            known.contains(&name.as_str()),
            "no group `{name}`; there are {list}"
        );
    }
    if !process::etcd_is_installed() {
        let seen = "not installed: its figures are left out; etcd of Debian's package etcd-server or of a release, on PATH, is measured";
        Row::noted("etcd", seen).print()?;
    }
    for (name, group) in GROUPS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            say(&format!("· {name}"));
            group(options).await?;
        }
    }
    load_average()?.print()
}

/// The load of the machine in the last minute, which disturbs the figures.
fn load_average() -> Result<Row> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let first = text.split(' ').next().unwrap_or_default();
    Ok(Row::new(
        "load average of the machine at the end",
        first.parse()?,
        "",
    ))
}

/// The same load on several servers in turns, so that noise of the machine affects all of them.
struct Turns<W> {
    sides: Vec<(Server, Load<W>)>,
}

impl<W: Work> Turns<W> {
    /// Connects a load to each server.
    async fn connect(servers: Vec<Server>, shape: Shape, work: impl Fn() -> W) -> Result<Self> {
        let mut sides = Vec::new();
        for server in servers {
            let load = Load::connect(&server, shape, work()).await?;
            sides.push((server, load));
        }
        Ok(Self { sides })
    }

    /// The samples of each server, one for each round.
    async fn run(&self, options: &Options) -> Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); self.sides.len()];
        for _ in 0..options.rounds {
            for ((server, load), samples) in self.sides.iter().zip(&mut samples) {
                samples.push(load.run(server, options.time()).await?);
            }
        }
        Ok(samples)
    }
}

impl Options {
    /// The server with which rows compare.
    async fn peer(&self, threads: usize, value_bytes: usize) -> Result<Server> {
        let peer = match &self.baseline {
            Some(program) => Kind::Build(program.clone()),
            None => Kind::Noop { value_bytes },
        };
        Server::start(&peer, threads).await
    }

    /// The peer, the store and, where it is installed, etcd.
    async fn servers(&self, threads: usize, value_bytes: usize) -> Result<Vec<Server>> {
        let mut servers = vec![
            self.peer(threads, value_bytes).await?,
            Server::start(&Kind::Store, threads).await?,
        ];
        if process::etcd_is_installed() {
            servers.push(Server::start(&Kind::Etcd, threads).await?);
        }
        Ok(servers)
    }
}

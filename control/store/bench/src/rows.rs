//! The rows of the report, in groups that can run alone.

mod compaction;
mod durable;
mod flood;
mod large;
mod lists;
mod memory;
mod reads;
mod recovery;
mod single;
mod stopped;
mod tls;
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
use crate::{host, progress};

/// Arguments of a run.
#[derive(Clone, Args)]
pub(crate) struct Options {
    /// Time of each measurement of one server, in seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Rounds; each measures every server once, and rows are medians of the rounds' figures and ratios
    #[arg(long, default_value_t = 9)]
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
/// A group by name, and the seconds that it takes with the default options on a machine with two cores.
type Named = (&'static str, u64, for<'a> fn(&'a Options) -> Group<'a>);

/// All groups, in the order of the report.
const GROUPS: [Named; 12] = [
    ("unary", 120, |options| Box::pin(unary::run(options))),
    ("single", 20, |options| Box::pin(single::run(options))),
    ("durable", 35, |options| Box::pin(durable::run(options))),
    ("range", 45, |options| Box::pin(reads::run(options))),
    ("lists", 45, |options| Box::pin(lists::run(options))),
    ("large", 45, |options| Box::pin(large::run(options))),
    ("watch", 40, |options| Box::pin(watch::run(options))),
    ("stopped", 45, |options| Box::pin(stopped::run(options))),
    ("memory", 70, |options| Box::pin(memory::run(options))),
    ("recovery", 180, |options| Box::pin(recovery::run(options))),
    ("compaction", 90, |options| {
        Box::pin(compaction::run(options))
    }),
    ("flood", 40, |options| Box::pin(flood::run(options))),
];

/// Groups that run only where they are named: they are rows of other benchmarks.
const NAMED_ONLY: [Named; 1] = [("tls", 60, |options| Box::pin(tls::run(options)))];

/// Runs the groups and prints their rows, then those about the machine.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let groups = selected(&options.only)?;
    if !process::etcd_is_installed() {
        let seen = "not installed: its figures are left out; etcd of Debian's package etcd-server or of a release, on PATH, is measured";
        Row::noted("etcd", seen).print()?;
    }
    let host = host::Before::read()?;
    let total = groups.iter().map(|(_, seconds, _)| seconds).sum();
    let mut done = 0;
    for (name, seconds, group) in groups {
        say(&progress::line(done, total, name));
        group(options).await?;
        done += seconds;
    }
    host.report()
}

/// The groups with these names; all without any.
fn selected(only: &[String]) -> Result<Vec<Named>> {
    if only.is_empty() {
        return Ok(GROUPS.into());
    }
    let all = || GROUPS.into_iter().chain(NAMED_ONLY);
    let known: Vec<_> = all().map(|(name, ..)| name).collect();
    for name in only {
        let list = known.join(", ");
        ensure!(
            known.contains(&name.as_str()),
            "no group `{name}`; there are {list}"
        );
    }
    let wanted = |(name, ..): &Named| only.iter().any(|only| only == name);
    Ok(all().filter(wanted).collect())
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

    /// The samples of each server, one for each round. Every second round is in the reverse order, so that a change of the
    /// machine's speed favours no server.
    async fn run(&self, options: &Options) -> Result<Vec<Vec<Sample>>> {
        let time = options.time();
        self.measure(options, async |server, load| load.run(server, time).await)
            .await
    }

    /// As [`Turns::run`], with another measurement of each turn.
    async fn measure<T>(
        &self,
        options: &Options,
        turn: impl AsyncFn(&Server, &Load<W>) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let mut measured: Vec<_> = self.sides.iter().map(|_| Vec::new()).collect();
        for round in 0..options.rounds {
            let mut turns: Vec<_> = self.sides.iter().zip(&mut measured).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for ((server, load), measured) in turns {
                measured.push(turn(server, load).await?);
            }
        }
        Ok(measured)
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

/// The number of worker threads in the name of a row.
fn worker_threads(threads: usize) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{threads} worker thread{plural}")
}

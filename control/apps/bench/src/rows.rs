//! The rows of the report, in groups that can run alone.

mod asleep;
mod awake;
mod idle;
mod million;
mod reconnect;
mod renewal;
mod rollout;
mod sleeping;
mod wakes;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dormouse_rows::{Bound, Row, host, progress, say};
use tempfile::TempDir;

use crate::control::Site;

/// Measures the control plane with sleeping apps and fake nodes; each row is a line of JSON on standard output
#[derive(Parser)]
pub(crate) struct Options {
    /// The program `dormouse`
    #[arg(long, value_name = "PROGRAM")]
    program: PathBuf,
    /// Sleeping apps of the rows about memory, idling and starts
    #[arg(long, default_value_t = 100_000)]
    apps: u32,
    /// Agents that reconnect at once; fewer if the limit of file descriptors is too low
    #[arg(long, default_value_t = 10_000, env = "DORMOUSE_BENCH_AGENTS")]
    agents: u16,
    /// Time for which certificates are renewed under load
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds, env = "DORMOUSE_BENCH_RENEWAL_SECONDS")]
    renewal_time: Duration,
    /// Run only these groups of rows
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<String>,
}

/// The future of a group.
type Group<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
/// A group by name, and the seconds that it takes on a machine with two cores.
type Named = (&'static str, u64, for<'a> fn(&'a Options) -> Group<'a>);

/// All groups, in the order of the report.
const GROUPS: [Named; 6] = [
    ("sleeping", 120, |options| Box::pin(sleeping::run(options))),
    ("wakes", 60, |options| Box::pin(wakes::run(options))),
    ("awake", 60, |options| Box::pin(awake::run(options))),
    ("rollout", 90, |options| Box::pin(rollout::run(options))),
    ("asleep", 90, |options| Box::pin(asleep::run(options))),
    ("million", 240, |options| Box::pin(million::run(options))),
];

/// Groups that run only where they are named: they are rows of another benchmark.
const NAMED_ONLY: [Named; 3] = [
    ("reconnect", 60, |options| Box::pin(reconnect::run(options))),
    ("idle", 80, |options| Box::pin(idle::run(options))),
    ("renewal", 90, |options| Box::pin(renewal::run(options))),
];

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// Runs the groups and prints their rows, then those about the machine.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let groups = selected(&options.only)?;
    let host = host::Before::read()?;
    let total = groups.iter().map(|(_, seconds, _)| seconds).sum();
    let mut done = 0;
    for (name, seconds, group) in groups {
        say(&progress::line(done, total, name));
        if let Err(error) = group(options).await {
            failed(name, &error)?;
        }
        done += seconds;
    }
    host.report()
}

/// A row that misses its bound instead of those that were not measured; the other groups go on.
fn failed(group: &str, error: &anyhow::Error) -> Result<()> {
    Row::new(format!("group {group} ended early: {error:#}"), 0.0, "")
        .must(Bound::AtLeast(1.0))
        .print()
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

impl Options {
    /// A control plane with its data in this folder.
    fn site<'a>(&'a self, folder: &'a TempDir) -> Site<'a> {
        Site {
            program: &self.program,
            folder: folder.path(),
            core: None,
        }
    }
}

/// A new folder for the data of one control plane.
fn folder() -> Result<TempDir> {
    tempfile::tempdir().context("failed to create a folder for the data")
}

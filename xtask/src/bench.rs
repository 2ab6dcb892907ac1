//! Benchmarks by name, each row with its bound.

mod apps;
mod cni;
mod dataplane;
mod flood;
mod kubernetes;
mod lines;
mod logs;
mod north_south;
mod percentile;
mod rollout;
mod scheduler;
mod store;
mod trust;
mod wake;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use dormouse_rows::host;

use crate::binaries::{self, Binaries};
use crate::interrupt::Interrupt;
use crate::progress::say;
use crate::report::{Report, Row};
use crate::{root, setup};

/// Arguments of `cargo xtask bench`.
pub(crate) struct Request {
    /// The benchmark's name.
    pub(crate) name: String,
    /// Groups of rows; all without any.
    pub(crate) groups: Vec<String>,
    /// File to which the rows are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Set by Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// What benchmarks of nodes need.
struct Options {
    /// The measured programs: release builds.
    binaries: Binaries,
    /// Groups of rows; all without any.
    groups: Vec<String>,
    /// Set by Ctrl-C.
    interrupt: Interrupt,
}

impl Options {
    /// Whether a group of rows is to be measured.
    fn runs(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|name| name == group)
    }
}

/// A benchmark.
enum Bench {
    /// It runs nodes in network namespaces, with BPF programs, and has these groups of rows; without any it runs as a whole.
    Nodes(fn(&Options) -> Result<Report>, &'static [&'static str]),
    /// It needs neither root nor BPF, and runs single groups of rows.
    Plain(fn(&[String]) -> Result<Report>),
}

/// All benchmarks, by name.
const BENCHES: [(&str, Bench); 12] = [
    ("apps", Bench::Plain(apps::run)),
    ("cni", Bench::Nodes(cni::run, &[])),
    ("dataplane", Bench::Nodes(dataplane::run, dataplane::GROUPS)),
    ("flood", Bench::Nodes(flood::run, flood::GROUPS)),
    (
        "kubernetes",
        Bench::Nodes(kubernetes::run, kubernetes::GROUPS),
    ),
    ("logs", Bench::Plain(logs::run)),
    ("north-south", Bench::Plain(north_south::run)),
    ("rollout", Bench::Nodes(rollout::run, rollout::GROUPS)),
    ("scheduler", Bench::Plain(scheduler::run)),
    ("store", Bench::Plain(store::run)),
    ("trust", Bench::Plain(trust::run)),
    ("wake", Bench::Nodes(wake::run, &[])),
];

impl Bench {
    fn run(&self, request: &Request) -> Result<Report> {
        match self {
            Self::Plain(bench) => bench(&request.groups),
            Self::Nodes(bench, groups) => {
                check_groups(request, groups)?;
                root::require("bench")?;
                setup::run()?;
                let options = Options {
                    binaries: binaries::build(binaries::Profile::Release)?,
                    groups: request.groups.clone(),
                    interrupt: request.interrupt.clone(),
                };
                let before = host::Before::read()?;
                let mut report = bench(&options)?;
                for figure in before.figures()? {
                    let row = Row::measured(figure.name, figure.value, figure.unit);
                    report.push(match figure.before {
                        Some(before) => row.against(before),
                        None => row,
                    });
                }
                Ok(report)
            }
        }
    }
}

fn check_groups(request: &Request, known: &[&str]) -> Result<()> {
    let Some(wrong) = request
        .groups
        .iter()
        .find(|name| !known.contains(&name.as_str()))
    else {
        return Ok(());
    };
    let name = &request.name;
    ensure!(
        !known.is_empty(),
        "the benchmark `{name}` runs as a whole: leave out `{wrong}`"
    );
    bail!(
        "the benchmark `{name}` has no group `{wrong}`; available: {}",
        known.join(", ")
    );
}

/// Runs the benchmark; an error names the rows that missed their bound.
pub(crate) fn run(request: &Request) -> Result<()> {
    let Some((_, bench)) = BENCHES.iter().find(|(name, _)| *name == request.name) else {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no benchmark `{}`; available: {}",
            request.name,
            known.join(", ")
        );
    };
    let report = bench.run(request)?;
    say(&report.to_string());
    report.finish(request.json.as_deref())
}

//! Benchmarks by name, each row with its bound.

mod cni;
mod dataplane;
mod percentile;
mod wake;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::binaries::Binaries;
use crate::interrupt::Interrupt;
use crate::progress::say;
use crate::report::Report;

/// Arguments of `cargo xtask bench`.
pub(crate) struct Options {
    /// The benchmark's name.
    pub(crate) name: String,
    /// File to which the rows are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The measured programs: release builds.
    pub(crate) binaries: Binaries,
    /// Set by Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// A benchmark.
type Bench = fn(&Options) -> Result<Report>;

/// All benchmarks, by name.
const BENCHES: [(&str, Bench); 3] = [
    ("cni", cni::run),
    ("dataplane", dataplane::run),
    ("wake", wake::run),
];

/// Runs the benchmark; an error names the rows that missed their bound.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some((_, bench)) = BENCHES.iter().find(|(name, _)| *name == options.name) else {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no benchmark `{}`; available: {}",
            options.name,
            known.join(", ")
        );
    };
    let report = bench(options)?;
    say(&report.to_string());
    report.finish(options.json.as_deref())
}

//! Measures one thing by name and says whether it reaches what it must.

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

/// What to measure, and where the rows go.
pub(crate) struct Options {
    /// The name of the measurement.
    pub(crate) name: String,
    /// Where the rows are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The programs that are measured: optimised.
    pub(crate) binaries: Binaries,
    /// Says when the person pressed Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// A measurement.
type Bench = fn(&Options) -> Result<Report>;

/// What can be measured, by name.
const BENCHES: [(&str, Bench); 3] = [
    ("cni", cni::run),
    ("dataplane", dataplane::run),
    ("wake", wake::run),
];

/// Runs the measurement; an error says what was not reached.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some((_, bench)) = BENCHES.iter().find(|(name, _)| *name == options.name) else {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!(
            "no measurement is called `{}`; there are: {}",
            options.name,
            known.join(", ")
        );
    };
    let report = bench(options)?;
    say(&report.to_string());
    report.finish(options.json.as_deref())
}

//! Measures one thing by name and says whether it reaches what it must.

use std::path::PathBuf;

use crate::binaries::Binaries;
use crate::interrupt::Interrupt;

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

/// Runs the measurement; an error says what was not reached.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Options {
        name,
        json,
        binaries,
        interrupt,
    } = options;
    let _ = (json, binaries, interrupt);
    anyhow::bail!("no measurement is called `{name}`")
}

//! Shows a sleeping app wake, scale, survive and sleep again over the real data path, claim by claim.

use std::path::PathBuf;

use crate::binaries::Binaries;
use crate::interrupt::Interrupt;

/// How the demo is to run.
pub(crate) struct Options {
    /// Leave everything running until Ctrl-C, instead of ending after the last claim.
    pub(crate) keep: bool,
    /// Where the claims are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The programs that it starts.
    pub(crate) binaries: Binaries,
    /// Says when the person pressed Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// Runs the demo; an error names the claim that did not hold.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Options {
        keep,
        json,
        binaries,
        interrupt,
    } = options;
    let _ = (keep, json, binaries, interrupt);
    anyhow::bail!("the demo has no claims yet")
}

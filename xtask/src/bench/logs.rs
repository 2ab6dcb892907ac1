//! The benchmark of pods' logs: a program of its own prints the rows. It needs neither root nor BPF.

use std::process::Command;

use anyhow::{Result, ensure};

use super::lines;
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-logs-bench";

/// Builds the program and runs it.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    ensure!(groups.is_empty(), "the benchmark `logs` runs as a whole");
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    let output = progress::run("measure logs", &mut command, Output::ErrorsOnFailure)?;
    let mut report = Report::new("logs");
    lines::read(PROGRAM, &output, &mut report)?;
    Ok(report)
}

//! The scheduler's benchmark: a program of its own, built without the rest, prints the rows. It needs neither root nor BPF.

use std::process::Command;

use anyhow::Result;

use super::lines;
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-scheduler-bench";

/// Builds the program and runs it with these groups, or with all.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    if !groups.is_empty() {
        command.args(["--only", &groups.join(",")]);
    }
    let output = progress::run(
        "measure the scheduler",
        &mut command,
        Output::ErrorsOnFailure,
    )?;
    let mut report = Report::new("scheduler");
    lines::read(PROGRAM, &output, &mut report)?;
    Ok(report)
}

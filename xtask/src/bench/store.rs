//! The store's benchmark: a program of its own, so that it is built in a short time and without BPF, prints the rows.

mod kills;

use std::process::Command;

use anyhow::Result;

use super::lines;
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-store-bench";
/// The group of the kills, which a run without groups leaves out: it takes as long as all others.
const KILLS: &str = "kills";

/// Builds the program and runs it with these groups, or with all. The group of kills is a test of its own.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let (kills, groups): (Vec<_>, Vec<_>) = groups.iter().cloned().partition(|name| name == KILLS);
    let mut report = Report::new("store");
    if kills.is_empty() || !groups.is_empty() {
        measure(&groups, &mut report)?;
    }
    if !kills.is_empty() {
        report.push(kills::run()?);
    }
    Ok(report)
}

/// Adds the rows of these groups.
pub(super) fn measure(groups: &[String], report: &mut Report) -> Result<()> {
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    command.arg("run");
    if !groups.is_empty() {
        command.args(["--only", &groups.join(",")]);
    }
    let output = progress::run("measure the store", &mut command, Output::ErrorsOnFailure)?;
    lines::read(PROGRAM, &output, report)
}

//! The benchmark of an agent that follows Services at an API server: a program of its own prints the rows.

use std::process::Command;

use anyhow::Result;

use super::{Options, lines};
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-kubernetes-bench";
/// Groups of rows: a usual number of Services, and ten times as many.
pub(super) const GROUPS: &[&str] = &["services", "million"];

pub(super) fn run(options: &Options) -> Result<Report> {
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    command.arg("--dormouse").arg(&options.binaries.dormouse);
    command.arg("--agent").arg(&options.binaries.agent);
    if !options.groups.is_empty() {
        command.args(["--only", &options.groups.join(",")]);
    }
    let output = progress::run("measure kubernetes", &mut command, Output::ErrorsOnFailure)?;
    let mut report = Report::new("kubernetes");
    lines::read(PROGRAM, &output, &mut report)?;
    Ok(report)
}

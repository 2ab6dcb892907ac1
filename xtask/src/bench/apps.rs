//! The benchmark of the apps controller and the activator: a program of its own in new namespaces, so that it needs no root, its ports
//! are free, and no process remains.

use std::process::Command;

use anyhow::Result;

use super::lines;
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-apps-bench";
/// The measured program, and the package with it.
const MEASURED: &str = "dormouse";
/// Its user is root in the namespaces; with the process, all that it has started ends.
const UNSHARE: [&str; 6] = [
    "--map-root-user",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

/// Builds the programs and runs the benchmark with these groups, or with all.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let mut report = Report::new("apps");
    measure(groups, &mut report)?;
    Ok(report)
}

/// Adds the rows of these groups.
pub(super) fn measure(groups: &[String], report: &mut Report) -> Result<()> {
    let measured = binaries::build_package(MEASURED)?;
    let program = binaries::build_package(PROGRAM)?;
    let mut command = Command::new("unshare");
    command.args(UNSHARE).arg(program);
    command.arg("--program").arg(measured);
    if !groups.is_empty() {
        command.args(["--only", &groups.join(",")]);
    }
    let output = progress::run("measure apps", &mut command, Output::ErrorsOnFailure)?;
    lines::read(PROGRAM, &output, report)
}

//! The scheduler's benchmark: programs of their own, built without the rest, print the rows. It needs neither root nor BPF.

use std::process::Command;

use anyhow::Result;

use super::lines;
use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Report;

/// The program of the scheduler that knows the whole cluster, and the package with it.
const WHOLE: &str = "dormouse-scheduler-bench";
/// The program of the scheduler as a service, and the package with it.
const SERVICE: &str = "dormouse-scheduler-service-bench";
/// The groups of rows of that one.
const OF_SERVICE: [&str; 2] = ["end-to-end", "preemption"];
/// The program of the scheduler whose nodes are spread over shards, and the package with it.
const SHARDED: &str = "dormouse-scheduler-shard-bench";
/// The group of rows of that one.
const SHARDS: &str = "shards";

/// Builds the programs and runs them with these groups, or with all.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let (shards, others): (Vec<_>, Vec<_>) =
        groups.iter().cloned().partition(|name| name == SHARDS);
    let (service, whole): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|name| OF_SERVICE.contains(&&**name));
    let mut report = Report::new("scheduler");
    for (program, of_program) in [(WHOLE, whole), (SERVICE, service)] {
        if !of_program.is_empty() || groups.is_empty() {
            let only = ["--only".to_owned(), of_program.join(",")];
            let arguments = if of_program.is_empty() {
                &[][..]
            } else {
                &only
            };
            measure(program, arguments, &mut report)?;
        }
    }
    if !shards.is_empty() || groups.is_empty() {
        measure(SHARDED, &[], &mut report)?;
    }
    Ok(report)
}

fn measure(program: &str, arguments: &[String], report: &mut Report) -> Result<()> {
    let mut command = Command::new(binaries::build_package(program)?);
    command.args(arguments);
    let title = format!("measure with {program}");
    let output = progress::run(&title, &mut command, Output::ErrorsOnFailure)?;
    lines::read(program, &output, report)
}

//! The benchmark of packets from outside in the uplink's driver: a program of its own prints the rows.

use anyhow::{Result, ensure};

use super::lines;
use crate::progress::{self, Output};
use crate::report::Report;
use crate::{binaries, root, setup};

/// The program.
const PROGRAM: &str = "north_south";

/// Builds the program and runs it.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    ensure!(
        groups.is_empty(),
        "the benchmark `north-south` runs as a whole"
    );
    root::require("bench")?;
    setup::run()?;
    let mut bench = binaries::cargo();
    bench.args(["bench", "--package", "dormouse-agent-datapath"]);
    bench.args(["--bench", PROGRAM]);
    let title = "measure packets from outside";
    let output = progress::run(title, &mut bench, Output::ErrorsOnFailure)?;
    let mut report = Report::new("north-south");
    lines::read(PROGRAM, &output, &mut report)?;
    Ok(report)
}

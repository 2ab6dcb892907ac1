//! Many runs of the test that kills the store under load: no acknowledged write is lost.

use anyhow::Result;

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::Row;

/// Runs of the test, each with a data directory of its own.
const RUNS: u32 = 10;
/// Rounds of load and kill -9 in one run of the test.
const KILLS: u32 = 100;
/// The test, of the package `dormouse`.
const TEST: &str = "a_killed_store_loses_no_acknowledged_write";

/// Runs the test; its output is shown if it fails.
pub(super) fn run() -> Result<Row> {
    for run in 1..=RUNS {
        let mut command = binaries::cargo();
        command.args(["test", "--package", "dormouse", "--test", "store_crash"]);
        command.args([TEST, "--", "--exact"]);
        let title = format!("kill the store {KILLS} times under load, run {run} of {RUNS}");
        progress::run(&title, &mut command, Output::OnFailure)?;
    }
    let claim = format!(
        "{} times kill -9 under load: no acknowledged write is lost",
        RUNS * KILLS
    );
    let seen = "operations linearizable, revisions unique, watches complete";
    Ok(Row::claim(&claim, true, seen))
}

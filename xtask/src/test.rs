//! `cargo xtask test`: all checks, also after one has failed, and their count.

mod counts;

use std::process::Command;

use anyhow::bail;

use self::counts::Counts;
use crate::binaries::{self, Binaries, Profile};
use crate::demo;
use crate::interrupt::Interrupt;
use crate::progress::{self, Output, say};
use crate::{root, setup, tidy};

/// Runs the cargo tests whose name contains `filter`, or, without one, everything.
pub(crate) fn run(filter: Option<&str>, interrupt: &Interrupt) -> anyhow::Result<()> {
    root::require("test")?;
    setup::run()?;
    // Tests start programs of other packages, which must be built first.
    let binaries = binaries::build(Profile::Dev)?;
    let mut counts = Counts::default();
    if filter.is_none() {
        check(&mut counts, "formatting", formatting());
        check(&mut counts, "lints", lints());
        check(&mut counts, "tidiness", tidy::run());
    }
    cargo_tests(&mut counts, filter);
    interrupt.check()?;
    if filter.is_none() {
        check(&mut counts, "demo", claims(binaries, interrupt));
    }
    say(&counts.to_string());
    if counts.failed > 0 {
        bail!("some checks failed");
    }
    Ok(())
}

fn check(counts: &mut Counts, name: &str, outcome: anyhow::Result<()>) {
    match outcome {
        Ok(()) => counts.passed += 1,
        Err(error) => {
            say(&format!("{name}: {error:#}"));
            counts.failed += 1;
        }
    }
}

fn formatting() -> anyhow::Result<()> {
    let mut command = binaries::cargo();
    command.args(["fmt", "--all", "--check"]);
    progress::run("check the formatting", &mut command, Output::OnFailure).map(drop)
}

fn lints() -> anyhow::Result<()> {
    let mut command = binaries::cargo();
    command.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]);
    progress::run("check the lints", &mut command, Output::OnFailure).map(drop)
}

/// Runs the tests of every package; one that does not compile counts as a failure.
fn cargo_tests(counts: &mut Counts, filter: Option<&str>) {
    let mut command: Command = binaries::cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(filter);
    let before = counts.failed;
    let outcome = progress::run_watched("run the tests", &mut command, Output::Always, |line| {
        counts.add(line);
    });
    if let Err(error) = outcome
        && counts.failed == before
    {
        check(counts, "tests", Err(error));
    }
}

fn claims(binaries: Binaries, interrupt: &Interrupt) -> anyhow::Result<()> {
    let interrupt = interrupt.clone();
    demo::run(&demo::Options {
        keep: false,
        json: None,
        binaries,
        interrupt,
    })
}

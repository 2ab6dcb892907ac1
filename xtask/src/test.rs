//! `cargo xtask test`: all checks, also after one has failed, their count, and the failures once more at the end.

mod counts;
mod failures;
mod programs;

use self::programs::Found;
use anyhow::bail;

use crate::binaries::{self, Binaries};
use crate::demo;
use crate::interrupt::Interrupt;
use crate::progress::{self, Output, say};
use crate::{root, setup, tidy};

/// Runs the tests whose name contains `filter`, or, without one, everything.
pub(crate) fn run(filter: Option<&str>, interrupt: &Interrupt) -> anyhow::Result<()> {
    root::require("test")?;
    setup::run()?;
    let (binaries, programs) = binaries::build_with_tests()?;
    let mut found = Found::default();
    if filter.is_none() {
        check(&mut found, "formatting", formatting());
        check(&mut found, "lints", lints());
        check(&mut found, "tidiness", tidy::run());
    }
    found.add(programs::run(&programs, filter));
    interrupt.check()?;
    found.add(programs::run_examples(filter));
    interrupt.check()?;
    if filter.is_none() {
        check(&mut found, "demo", claims(binaries, interrupt));
    }
    found.failures.iter().for_each(|failure| say(failure));
    say(&found.counts.to_string());
    if found.counts.failed > 0 {
        bail!("some checks failed");
    }
    Ok(())
}

fn check(found: &mut Found, name: &str, outcome: anyhow::Result<()>) {
    match outcome {
        Ok(()) => found.counts.passed += 1,
        Err(error) => {
            let failure = format!("✗ {name}: {error:#}");
            say(&failure);
            found.counts.failed += 1;
            found.failures.push(failure);
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

fn claims(binaries: Binaries, interrupt: &Interrupt) -> anyhow::Result<()> {
    let interrupt = interrupt.clone();
    demo::run(&demo::Options {
        keep: false,
        json: None,
        binaries,
        interrupt,
    })
}

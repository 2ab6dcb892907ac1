//! The one command of this repository: sets a machine up, builds, tests, measures and shows Dormouse.
#![forbid(unsafe_code)]

mod bench;
mod binaries;
mod demo;
mod interrupt;
mod progress;
mod report;
mod root;
mod setup;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::interrupt::Interrupt;

/// Sets a machine up, builds, tests, measures and shows Dormouse.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// What can be asked for.
#[derive(Subcommand)]
enum Verb {
    /// Finds, and where it may installs, what building and testing need.
    Setup,
    /// Builds the BPF objects and the programs, and prints where they are.
    Build {
        /// Optimised, as it would be installed.
        #[arg(long)]
        release: bool,
    },
    /// Runs every check: formatting, lints, tidiness, tests and the demo's claims.
    Test {
        /// Run only the cargo tests whose name contains this.
        filter: Option<String>,
    },
    /// Builds a small cluster in network namespaces and checks what Dormouse promises.
    Demo {
        /// Leave it running, for a look around, until Ctrl-C.
        #[arg(long)]
        keep: bool,
        /// Also write the claims to this file.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measures, and compares with what must be reached.
    Bench {
        /// What to measure.
        name: String,
        /// Also write the rows to this file.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Checks the rules of this repository that no compiler knows.
    Tidy,
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    let outcome = Interrupt::install().and_then(|interrupt| run(verb, &interrupt));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb, interrupt: &Interrupt) -> anyhow::Result<()> {
    match verb {
        Verb::Setup => setup::run(),
        Verb::Build { release } => {
            setup::run()?;
            let binaries = binaries::build(binaries::Profile::from_release(release))?;
            progress::say(&binaries.to_string());
            Ok(())
        }
        Verb::Test { filter } => test::run(filter.as_deref(), interrupt),
        Verb::Demo { keep, json } => {
            root::require("demo")?;
            setup::run()?;
            let binaries = binaries::build(binaries::Profile::Dev)?;
            demo::run(&demo::Options {
                keep,
                json,
                binaries,
                interrupt: interrupt.clone(),
            })
        }
        Verb::Bench { name, json } => {
            root::require("bench")?;
            setup::run()?;
            let binaries = binaries::build(binaries::Profile::Release)?;
            bench::run(&bench::Options {
                name,
                json,
                binaries,
                interrupt: interrupt.clone(),
            })
        }
        Verb::Tidy => tidy::run(),
    }
}

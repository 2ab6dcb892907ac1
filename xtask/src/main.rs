//! `cargo xtask`: machine setup, builds, tests, benchmarks and the demo of this repository.
#![forbid(unsafe_code)]

mod bench;
mod binaries;
mod demo;
mod image;
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

/// Sets up the machine, builds, tests and measures Dormouse, and runs its demo
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// The subcommands.
#[derive(Subcommand)]
enum Verb {
    /// Check for the programs and packages that builds and tests need, and install missing ones
    Setup,
    /// Build the BPF object and all programs, and print their paths
    Build {
        /// Build with optimisations, for installation
        #[arg(long)]
        release: bool,
    },
    /// Build the container image of a node, as an OCI archive
    Image {
        /// The archive [default: target/dormouse-node.tar]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Tag of the image [default: the version]
        #[arg(long)]
        tag: Option<String>,
    },
    /// Run all checks: formatting, lints, tidy, tests and the demo
    Test {
        /// Run only the cargo tests whose name contains this text
        filter: Option<String>,
    },
    /// Start a small cluster in network namespaces and check Dormouse's main claims on it
    Demo {
        /// Leave the cluster running until Ctrl-C
        #[arg(long)]
        keep: bool,
        /// Also write the results to this file, as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Run a benchmark and compare its results with their bounds
    Bench {
        /// Name of the benchmark: apps, cni, dataplane, flood, kubernetes, logs, rollout, scheduler, store, trust or wake
        name: String,
        /// Groups of rows, such as wakes or lists (a wrong name prints those that there are); without any, all but the longest
        groups: Vec<String>,
        /// Also write the results to this file, as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Check the repository's own rules, which neither the compiler nor clippy checks
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
        Verb::Image { to, tag } => {
            setup::run()?;
            image::run(to, tag.as_deref())
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
        Verb::Bench { name, groups, json } => bench::run(&bench::Request {
            name,
            groups,
            json,
            interrupt: interrupt.clone(),
        }),
        Verb::Tidy => tidy::run(),
    }
}

//! The load of `cargo xtask bench scheduler` for the scheduler as a service: pods of our store that it binds, and preemption.
#![forbid(unsafe_code)]

mod objects;

mod store;

mod end_to_end;

mod preemption;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use dormouse_allocator::Allocator;
use dormouse_rows::say;

/// As in the program that runs the service.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Measures the scheduler as a service; each row is a line of JSON on standard output
#[derive(Parser)]
struct Options {
    /// Nodes of the end-to-end run
    #[arg(long, default_value_t = 1_000_000)]
    nodes: usize,
    /// Pods of the end-to-end run
    #[arg(long, default_value_t = 1_000_000)]
    pods: usize,
    /// Run only these groups of rows: end-to-end, preemption
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<String>,
    /// Serve a store until standard input ends; the end-to-end run starts it in a process of its own
    #[arg(long, hide = true)]
    serve_store: bool,
}

impl Options {
    fn has(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == group)
    }

    fn run(&self) -> Result<()> {
        if self.serve_store {
            return store::serve();
        }
        if self.has("preemption") {
            say("preemption");
            preemption::rows()?;
        }
        if self.has("end-to-end") {
            say("end-to-end");
            end_to_end::rows(self.nodes, self.pods)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    dormouse_allocator::configure();
    dormouse_rows::end(Options::parse().run())
}

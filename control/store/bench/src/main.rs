//! The load of `cargo xtask bench store`, and the servers that it compares: the store, and a server that does nothing.
//! Each server is a process of its own, so that its CPU time and its memory are measured alone.
#![forbid(unsafe_code)]

mod certificates;
mod load;
mod noop;
mod process;
mod proto;
mod rows;
mod serve;
mod watchers;
mod work;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use dormouse_rows::{host, progress, row, sample};

/// Measures the store against a server that does nothing and against etcd
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve the store until standard input ends
    Serve(serve::Options),
    /// Answer requests with values of a fixed size until standard input ends
    Noop(noop::Options),
    /// Measure; each row is a line of JSON on standard output
    Run(rows::Options),
}

fn main() -> ExitCode {
    dormouse_rows::end(run(Arguments::parse().verb))
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Serve(options) => runtime(options.threads)?.block_on(serve::run(&options)),
        Verb::Noop(options) => runtime(options.threads)?.block_on(noop::run(&options)),
        Verb::Run(options) => runtime(load::THREADS)?.block_on(rows::run(&options)),
    }
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

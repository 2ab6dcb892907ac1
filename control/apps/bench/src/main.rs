//! The load of `cargo xtask bench apps`: the control plane as processes of their own, sleeping apps in its store, and nodes of which
//! only the end of the fleet stream exists. It runs in a network namespace without other programs, see [`place`].
#![forbid(unsafe_code)]

mod place;

mod control;
mod cores;

mod certificates;

mod app;

mod node;
mod probe;

mod watch;

mod parked;
mod pauses;

mod rows;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

fn main() -> ExitCode {
    dormouse_rows::end(run(&rows::Options::parse()))
}

fn run(options: &rows::Options) -> Result<()> {
    place::prepare()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(rows::run(options))
}

//! The load of `cargo xtask bench kubernetes`: an agent that follows Services at `dormouse up`, and the time until the kernel's maps
//! have what the API has.
//!
//! Reading order: the hosts and processes ([`place`]), the objects ([`objects`]), requests to the API ([`api`]), what the kernel
//! has ([`kernel`]), what the agent asks for ([`relay`]), and the rows ([`rows`]).
#![forbid(unsafe_code)]

mod objects;

mod api;
mod kernel;
mod relay;

mod agent_log;
mod place;

mod rows;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

fn main() -> ExitCode {
    dormouse_rows::end(run(&rows::Options::parse()))
}

fn run(options: &rows::Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(rows::run(options))
}

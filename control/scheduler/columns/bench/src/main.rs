//! The load of `cargo xtask bench scheduler`: clusters of up to a million nodes in memory, and pods that the engine places on
//! them one after the other, with nothing else around.
#![forbid(unsafe_code)]

mod load;

mod rows;

use std::process::ExitCode;

use clap::Parser;

/// As in the programs that run the engine.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dormouse_rows::end(rows::run(&rows::Options::parse()))
}

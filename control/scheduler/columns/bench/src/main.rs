//! The load of `cargo xtask bench scheduler`: clusters of up to a million nodes in memory, and pods that the engine places on
//! them one after the other, with nothing else around.
#![forbid(unsafe_code)]

mod load;

mod rows;

use std::process::ExitCode;

use clap::Parser;
use dormouse_allocator::Allocator;

/// As in the programs that run the engine.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    dormouse_allocator::configure();
    dormouse_rows::end(rows::run(&rows::Options::parse()))
}

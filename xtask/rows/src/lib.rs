//! What the programs of `cargo xtask bench` share: rows as lines of JSON, a process' CPU time and memory, the machine's speed.
#![forbid(unsafe_code)]

pub mod row;

pub mod sample;

pub mod progress;

pub mod process;

pub mod host;

mod end;

pub use end::end;
pub use row::{Bound, Row, print, say};

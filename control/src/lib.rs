//! Control: the roles that one process runs, the API that people and `kubectl` speak to it, and the commands with
//! which people do.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod metrics;
pub mod up;

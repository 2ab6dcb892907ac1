//! The control plane: its roles in one process, the REST API, and the `dormouse` commands.
#![forbid(unsafe_code)]

pub mod activator;
pub mod api;
pub mod audit;
pub mod cli;
mod descriptors;
mod flags;
mod listen;
pub mod members;
pub mod metrics;
pub mod readiness;
mod role;
pub mod scheduler;
pub mod simulate;
pub mod trust;
pub mod up;

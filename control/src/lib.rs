//! The control plane: its roles in one process, the REST API, and the `dormouse` commands.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod metrics;
pub mod up;

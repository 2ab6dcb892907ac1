//! The API over a real store, with the `kube` crate, kubectl and the `dormouse` commands as clients.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed call fails the test"
)]

mod audit;
mod changes;
mod client;
mod commands;
mod hints;
mod kubectl;
mod lists;
mod logs;
mod matrix;
mod rest;
mod revisions;
mod rights;
mod rollout;
mod screens;
mod services;
mod startup;
mod world;

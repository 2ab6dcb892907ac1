//! The API and the commands end to end, over a real store: by the `kube` crate, by kubectl, by our own commands.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at its first surprise"
)]

mod commands;
mod kubectl;
mod rest;
mod world;

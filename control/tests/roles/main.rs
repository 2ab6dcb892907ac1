//! The control plane and its activator as processes, in a network namespace where the acting prefix is local, with a
//! simulated node and pods of the test.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod activator;
mod control;
mod eviction;
mod node;
mod readiness;
mod settings;
mod sick;
mod traffic;
mod trust;
mod world;

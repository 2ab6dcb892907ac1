//! The checker on histories of a simulated store: it accepts them, and rejects each planted fault.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a simulated operation has an answer; a fault that is accepted fails the test"
)]

mod brute_force;
mod operations;
mod simulation;
mod watches;

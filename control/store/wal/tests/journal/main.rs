//! The journal against a disk that tears, drops and refuses writes.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test panics as the test does"
)]

mod concurrency;
mod crash;
mod disk;
mod faults;
mod harness;
mod refusals;
mod restart;
mod snapshots;

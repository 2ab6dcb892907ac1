//! Databases that are written and read, and one that etcd wrote.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed call fails the test"
)]

mod etcd_snapshot;
mod round_trip;

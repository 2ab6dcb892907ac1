//! Snapshots that are written and read, and one that etcd saved.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod etcd;
mod round_trip;

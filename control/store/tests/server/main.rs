//! The server as clients meet it: over gRPC on a loopback port, by the `etcd-client` crate and by
//! etcd's own command.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails ends the test"
)]

mod clients;
mod etcdctl;
mod harness;
mod races;
mod slow;

//! The server over gRPC on a loopback port, with the `etcd-client` crate and etcdctl as clients.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed call fails the test"
)]

mod client_cases;
mod clients;
mod concurrency;
mod connections;
mod etcdctl;
mod harness;
mod http;
mod in_process;
mod kubernetes;
mod linearizable;
mod metrics;
mod pages;
mod races;
mod refusals;
mod services;
mod slow;
mod sockets;
mod stream;
mod tls;
mod transcripts;

//! The activator over real sockets on loopback: `::1` is VIP index 1 in the acting prefix `::/96`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod rig;

mod backends;
mod disconnects;
mod framing;
mod hosts;
mod isolation;
mod link;
mod lookup;
mod memory;
mod parking;
mod protocols;
mod refusals;
mod retries;
mod slow_clients;
mod split;
mod streaming;

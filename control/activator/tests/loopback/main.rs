//! The activator over real sockets on loopback: `::1` is VIP index 1 in the acting prefix `::/96`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod rig;

mod backends;
mod isolation;
mod leaving;
mod parking;
mod protocols;
mod refusals;
mod streaming;

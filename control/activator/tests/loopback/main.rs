//! The activator over real sockets on loopback: `::1` is VIP index 1 in the acting prefix `::/96`.

mod backends;
mod isolation;
mod leaving;
mod parking;
mod protocols;
mod refusals;
mod rig;
mod streaming;

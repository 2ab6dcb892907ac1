//! What the activator is told at its start, and what control tells it about each app.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use dormouse_proxy::Limits;

/// The activator's limits; every one of them answers with a clear error when it is met.
#[derive(Clone, Debug)]
pub struct Config {
    /// The /96 in which this activator stands for apps; the low 32 bits are zero.
    pub acting_prefix: Ipv6Addr,
    /// Requests parked at one time, all apps together.
    pub parked_max: usize,
    /// Memory of parked requests, in bytes, all apps together.
    pub parked_bytes_max: usize,
    /// Requests of one app parked at one time (Knative's queue depth).
    pub queue_per_app_max: usize,
    /// Memory of one app's parked requests, in bytes: no app may fill the whole.
    pub queue_bytes_per_app_max: usize,
    /// Client connections open at one time, all apps together.
    pub connections_max: usize,
    /// Client connections of one app open at one time.
    pub connections_per_app_max: usize,
    /// A connection must send a complete head within this, also between two requests.
    pub header_timeout: Duration,
    /// At shutdown, requests under way have this long.
    pub drain_timeout: Duration,
    /// Demands not yet taken by control; a further one is asked again a second later.
    pub demands_max: usize,
    /// Connections to each backend.
    pub backend: Limits,
}

impl Config {
    /// The defaults, standing in `acting_prefix`.
    pub fn new(acting_prefix: Ipv6Addr) -> Self {
        Self {
            acting_prefix,
            parked_max: 100_000,
            parked_bytes_max: 1 << 30,
            queue_per_app_max: 10_000,
            queue_bytes_per_app_max: 1 << 28,
            connections_max: 120_000,
            connections_per_app_max: 20_000,
            header_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(30),
            demands_max: 16_384,
            backend: Limits::default(),
        }
    }
}

/// One app, as control wants it routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `namespace/name`, for people.
    pub name: String,
    /// The VIP's port; it is the acting address's port too.
    pub port: u16,
    /// Requests in flight per backend; 0 for no limit.
    pub container_concurrency: u32,
    /// Longest time from a request's head to the end of its response.
    pub timeout: Duration,
    /// Ready pods, with the port they listen on.
    pub backends: Vec<SocketAddrV6>,
}

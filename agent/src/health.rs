//! What load balancers ask: the health ports of Services (`healthCheckNodePort`), and the health of this proxy.
//!
//! Paths, fields, headers and status codes are kube-proxy's: what probes it probes this as well.
//!
//! Reading order: how the proxy itself is ([`ProxyHealth`]), the ports of Services ([`Health`]), and the HTTP server that
//! both share (`server`).

mod answer;
mod ports;
mod proxy;
mod server;

pub use ports::{Health, HealthError, Listen};
pub use proxy::{PENDING_MAX, ProxyHealth, is_eligible, serve};

//! Health servers: the health check node ports of Services (`healthCheckNodePort`), and the health of this service proxy.
//!
//! Paths, fields, headers and status codes are the same as kube-proxy's, so its probes work unchanged.
//!
//! Reading order: the proxy's state ([`ProxyHealth`]), the ports of Services ([`Health`]), and the HTTP server that both use
//! (`server`).

mod answer;
mod ports;
mod proxy;
mod server;

pub use ports::{Health, HealthError, Listen};
pub use proxy::{PENDING_MAX, ProxyHealth, is_eligible, serve};

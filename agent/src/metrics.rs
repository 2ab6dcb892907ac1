//! Prometheus metrics: values are read at each scrape, and no label contains the name of an app, pod or address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dormouse_fleet::{Incoming, http};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

mod collect;
mod readers;
mod readiness;

pub use collect::Collected;
pub use readers::Readers;
pub use readiness::serve_waiting;

/// Open connections; further ones wait, so that clients do not use up the agent's descriptors.
const CONNECTIONS_MAX: usize = 128;

/// The connections of a listener. With a certificate, they have TLS, but those of probes and of this node's commands may be plain text: who may
/// read what depends on the client, not on TLS.
pub fn incoming(listener: TcpListener, tls: Option<&Arc<ServerConfig>>) -> Incoming {
    let incoming = Incoming::new(listener, CONNECTIONS_MAX);
    match tls {
        Some(config) => incoming.secured_with_reason(Arc::clone(config)),
        None => incoming,
    }
}

/// Serves `/healthz` and `/readyz` to all clients, and `/metrics` and other read-only routes to readers, until `shutdown`.
pub async fn serve(
    incoming: Incoming,
    collected: Collected,
    (others, readers): (Router, Readers),
    ready: Readiness,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let mut registry = Registry::default();
    if let Some(network) = &collected.network {
        network.wiring().register(&mut registry);
    }
    registry.register_collector(Box::new(collected));
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .with_state(Arc::new(registry))
        .merge(others)
        .route_layer(from_fn_with_state(readers, readers::admit));
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .merge(readiness::route(ready))
        .merge(guarded);
    http::serve(incoming, router, shutdown).await
}

/// Binds the metrics server's address.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    let encoded: Result<(), fmt::Error> =
        prometheus_client::encoding::text::encode(&mut text, &registry);
    match encoded {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

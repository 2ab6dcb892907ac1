//! Prometheus metrics: values are read at each scrape, and no label contains the name of an app, pod or address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

mod collect;
mod readiness;

pub use collect::Collected;
pub use readiness::serve_waiting;

/// Serves `/metrics`, `/healthz`, `/readyz` and other read-only routes until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    collected: Collected,
    others: Router,
    ready: Readiness,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let mut registry = Registry::default();
    if let Some(network) = &collected.network {
        network.wiring().register(&mut registry);
    }
    registry.register_collector(Box::new(collected));
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(registry))
        .merge(readiness::route(ready))
        .merge(others);
    // Some routes are for callers on this node only.
    axum::serve(
        listener,
        router.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(shutdown.cancelled_owned())
    .await
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

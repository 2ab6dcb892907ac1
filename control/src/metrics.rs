//! The HTTP endpoints `/metrics` and `/healthz`.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The text format's media type (openmetrics.io).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `registry` until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let registry = Arc::new(registry);
    let page = move || {
        let mut text = String::new();
        let written = encode(&mut text, &registry);
        async move {
            match written {
                Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
                Err(error) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
                }
            }
        }
    };
    let router = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(|| async { "ok" }));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

//! The HTTP endpoints beside the gRPC services: health, version and metrics, as etcd serves them.

mod health;

use std::sync::Arc;

use axum::{
    Json, Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text, registry::Registry};
use serde_json::{Value, json};

use super::API_VERSION;
use crate::Store;

/// The text format's media type (openmetrics.io).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/health`, `/livez`, `/readyz`, `/version` and `/metrics` of a store.
pub(super) fn router(store: &Store) -> Router {
    let mut registry = Registry::default();
    store.register(&mut registry);
    let registry = Arc::new(registry);
    Router::new()
        .route("/version", get(async || version()))
        .route("/metrics", get(async move || metrics(&registry)))
        .merge(health::router(store))
}

fn version() -> Json<Value> {
    Json(json!({
        "etcdserver": API_VERSION,
        "etcdcluster": API_VERSION,
        "storage": API_VERSION,
    }))
}

fn metrics(registry: &Registry) -> Response {
    let mut page = String::new();
    match text::encode(&mut page, registry) {
        Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

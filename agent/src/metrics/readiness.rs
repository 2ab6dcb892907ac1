//! `/readyz`, and the answers of a node that waits for its Node object.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::routing::get;
use dormouse_fleet::Incoming;
use tokio::sync::watch;

use crate::cni::Refusal;
use crate::readiness::Readiness;

/// The route.
pub(super) fn route(readiness: Readiness) -> Router {
    let answer = async move || match readiness.check().await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => unready(reason),
    };
    Router::new().route("/readyz", get(answer))
}

/// Answers while the node waits for its Node object, until the future is dropped: `/healthz` with success, all else with the
/// present refusal. Each connection has one answer: further ones are for what follows.
pub async fn serve_waiting(
    incoming: Incoming,
    refusal: watch::Receiver<Refusal>,
) -> std::io::Result<()> {
    let close = || [(header::CONNECTION, "close")];
    let refused = async move |State(refusal): State<watch::Receiver<Refusal>>| {
        let (status, reason) = unready(&refusal.borrow().reason);
        (status, close(), reason)
    };
    let router = Router::new()
        .route("/healthz", get(async move || (close(), "ok\n")))
        .fallback(refused)
        .with_state(refusal);
    let service = router.into_make_service();
    axum::serve(incoming, service).await
}

fn unready(reason: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

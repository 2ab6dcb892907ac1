//! `/readyz`: whether pods can be added to this node and Services are in force on it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::routing::get;
use dormouse_agent_pod::Network;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cni::Refusal;

/// The route. `network`: none, if another plugin wires the pods. `in_force`: whether Services are.
pub(super) fn route(network: Option<Arc<Network>>, in_force: watch::Receiver<bool>) -> Router {
    let answer = async move || {
        if !*in_force.borrow() {
            return unready("Services are not in force yet");
        }
        let Some(network) = network else {
            return (StatusCode::OK, "ok\n".to_owned());
        };
        match tokio::task::spawn_blocking(move || network.status()).await {
            Ok(Ok(())) => (StatusCode::OK, "ok\n".to_owned()),
            Ok(Err(error)) => unready(error.chain()),
            Err(error) => unready(error),
        }
    };
    Router::new().route("/readyz", get(answer))
}

/// Answers while the node waits for its Node object, until the future is dropped: `/healthz` with success, all else with the
/// present refusal. Each connection has one answer: further ones are for what follows.
pub async fn serve_waiting(
    listener: TcpListener,
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
    axum::serve(listener, service).await
}

fn unready(reason: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

//! `/readyz`: whether pods can be added to this node and Services are in force on it.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use dormouse_agent_pod::Network;
use tokio::sync::watch;

/// The route. `in_force`: whether Services are.
pub(super) fn route(network: Arc<Network>, in_force: watch::Receiver<bool>) -> Router {
    let answer = async move || {
        let in_force = *in_force.borrow();
        let status = tokio::task::spawn_blocking(move || network.status()).await;
        match status {
            _ if !in_force => unready("Services are not in force yet"),
            Ok(Ok(())) => (StatusCode::OK, "ok\n".to_owned()),
            Ok(Err(error)) => unready(error.chain()),
            Err(error) => unready(error),
        }
    };
    Router::new().route("/readyz", get(answer))
}

fn unready(reason: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

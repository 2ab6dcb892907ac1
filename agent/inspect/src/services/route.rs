//! `GET /services`, the agent's read-only route, and its client.

use std::net::SocketAddr;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::{ServiceQuery, ServiceRow, SharedServices, rows};
use crate::client;
use crate::output::{Row, listed};
use crate::{Exit, InspectError};

/// Path of the route.
pub const PATH: &str = "/services";

/// The route; without Services, the list is empty. It has names of Services: who may read them is for the server to check.
pub fn route(services: Option<SharedServices>) -> Router {
    Router::new().route(PATH, get(list)).with_state(services)
}

async fn list(
    State(services): State<Option<SharedServices>>,
    Query(wanted): Query<ServiceQuery>,
) -> Response {
    let rows = tokio::task::spawn_blocking(move || {
        // The lock is held for the rows, not for their serialization.
        let rows = services.map(|services| rows(&services.lock(), &wanted));
        listed(&rows.unwrap_or_default())
    });
    match rows.await {
        Ok(list) => Json(list).into_response(),
        Err(error) => {
            let kind = [(header::CONTENT_TYPE, "text/plain")];
            (StatusCode::INTERNAL_SERVER_ERROR, kind, error.to_string()).into_response()
        }
    }
}

/// The document of the route.
#[derive(Deserialize)]
struct List {
    kind: String,
    items: Vec<ServiceRow>,
}

/// Reads service ports from the agent.
pub fn read(agent: SocketAddr, wanted: &ServiceQuery) -> Result<Vec<ServiceRow>, InspectError> {
    let path = format!("{PATH}?{}", wanted.query());
    let list: List = client::read(agent, &path, "services")?;
    if list.kind != ServiceRow::KIND {
        let message = format!("the agent at {agent} sent a {}", list.kind);
        let hint = "use the same version of command and agent";
        return Err(InspectError::new(Exit::Unreachable, message, hint));
    }
    Ok(list.items)
}

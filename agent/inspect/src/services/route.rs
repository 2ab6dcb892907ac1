//! `GET /services`, the agent's read-only route, and its client.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Query, State};
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

/// The route; without Services, the list is empty.
pub fn route(services: Option<SharedServices>) -> Router {
    Router::new().route(PATH, get(list)).with_state(services)
}

async fn list(
    State(services): State<Option<SharedServices>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    Query(wanted): Query<ServiceQuery>,
) -> Response {
    if !is_here(caller.ip()) {
        // Metrics contain no names; this route does.
        return (
            StatusCode::FORBIDDEN,
            "only callers on this node may read Services",
        )
            .into_response();
    }
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

/// Whether an address is local to this machine.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let own = |interface: nix::ifaddrs::InterfaceAddress| {
        let found = interface.address?;
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
    };
    address.is_loopback()
        || nix::ifaddrs::getifaddrs().is_ok_and(|mut all| all.any(|one| own(one) == Some(address)))
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

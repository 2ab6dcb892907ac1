//! Join tokens and the revocation of nodes, which are no objects: `POST` makes a token's line, or revokes.

use std::sync::Arc;
use std::time::Duration;

use axum::{Json, Router, extract::State, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, Failure};
use crate::trust::{CreateError, Registrar, Subject};

/// Longest life of a token.
const TTL_MAX: Duration = Duration::from_hours(24 * 30);

pub(super) fn routes() -> Router<Arc<Api>> {
    let base = "/apis/dormouse.dev/v1alpha1";
    Router::new()
        .route(&format!("{base}/jointokens"), post(invite))
        .route(&format!("{base}/noderevocations"), post(revoke))
}

/// A token to make.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invitation {
    subject: Subject,
    ttl_seconds: u64,
}

/// A node to revoke.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Revocation {
    node: String,
}

async fn invite(
    State(api): State<Arc<Api>>,
    Json(invitation): Json<Invitation>,
) -> Result<Json<Value>, Failure> {
    let ttl = Duration::from_secs(invitation.ttl_seconds);
    if ttl.is_zero() || ttl > TTL_MAX {
        return Err(Failure::bad_request("the ttl of a token is 1 s to 30 days"));
    }
    let made = registrar(&api)?.invite(invitation.subject, ttl).await;
    let line = made.map_err(|error| match error {
        CreateError::Name(_) => Failure::bad_request(error.to_string()),
        CreateError::Store(_) | CreateError::Token(_) => Failure::unavailable(&error.to_string()),
    })?;
    Ok(Json(json!({"line": line.reveal().as_str()})))
}

async fn revoke(
    State(api): State<Arc<Api>>,
    Json(revocation): Json<Revocation>,
) -> Result<Json<Value>, Failure> {
    let revoked = registrar(&api)?.revoke(&revocation.node).await;
    revoked.map_err(|error| Failure::unavailable(&error.to_string()))?;
    Ok(Json(json!({"node": revocation.node})))
}

fn registrar(api: &Api) -> Result<&Registrar, Failure> {
    let none = "this control plane has no certificates: start it with --tls";
    api.registrar
        .as_ref()
        .ok_or_else(|| Failure::bad_request(none))
}

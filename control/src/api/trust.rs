//! Join tokens and the revocation of nodes, which are no objects: `POST` makes a token's line, or revokes.

use std::sync::Arc;
use std::time::Duration;

use axum::{Json, Router, extract::State, routing::post};
use dormouse_cluster::App;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Api, Failure, Kind, rights::review::Reviews, write::request::WriteRequest};
use crate::trust::{CreateError, Registrar, Subject};

/// The kinds, for discovery.
pub(super) const KINDS: Reviews = &[
    ("jointokens", false, "JoinToken"),
    ("noderevocations", false, "NodeRevocation"),
];
/// Longest life of a token.
const TTL_MAX: Duration = Duration::from_hours(24 * 30);

pub(super) fn routes() -> Router<Arc<Api>> {
    let base = App::BASE;
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
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    let (registrar, invitation) = asked::<Invitation>(&api, &request)?;
    let ttl = Duration::from_secs(invitation.ttl_seconds);
    if ttl.is_zero() || ttl > TTL_MAX {
        return Err(Failure::bad_request("the ttl of a token is 1 s to 30 days"));
    }
    let made = registrar.invite(invitation.subject, ttl).await;
    let line = made.map_err(|error| match error {
        CreateError::Name(_) => Failure::bad_request(error.to_string()),
        CreateError::Store(_) | CreateError::Token(_) => Failure::unavailable(&error.to_string()),
    })?;
    Ok(Json(json!({"line": line.reveal().as_str()})))
}

async fn revoke(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    let (registrar, Revocation { node }) = asked(&api, &request)?;
    let revoked = registrar.revoke(&node).await;
    revoked.map_err(|error| Failure::unavailable(&error.to_string()))?;
    Ok(Json(json!({"node": node})))
}

/// What a request asks for, and who does it.
fn asked<'a, T: DeserializeOwned>(
    api: &'a Api,
    request: &WriteRequest,
) -> Result<(&'a Registrar, T), Failure> {
    if request.dry_run {
        return Err(Failure::bad_request("there is no dry run of this"));
    }
    let asked = serde_json::from_value(request.json()?);
    let asked = asked.map_err(|error| Failure::bad_request(error.to_string()))?;
    let none = "this control plane has no certificates: start it with --tls";
    let registrar = api.registrar.as_ref();
    Ok((registrar.ok_or_else(|| Failure::bad_request(none))?, asked))
}

//! Tokens and the revocation of nodes, which are no objects: `POST` makes a token, or revokes.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    routing::{delete, post},
};
use dormouse_cluster::{App, ClientError};
use dormouse_rbac::User;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Api, Authenticator, Failure, Kind, rights::review::Reviews, write::request::WriteRequest,
};
use crate::trust::{CreateError, Registrar, Subject, TokenUser, Tokens};

/// The kinds of which objects are only created, for discovery.
pub(super) const CREATED: Reviews = &[
    ("jointokens", false, "JoinToken"),
    ("noderevocations", false, "NodeRevocation"),
];
/// Those of which objects are also deleted.
pub(super) const DELETED: Reviews = &[("usertokens", false, "UserToken")];
/// Longest life of a token.
const TTL_MAX: Duration = Duration::from_hours(24 * 30);

pub(super) fn routes() -> Router<Arc<Api>> {
    let base = App::BASE;
    Router::new()
        .route(&format!("{base}/jointokens"), post(invite))
        .route(&format!("{base}/noderevocations"), post(revoke))
        .route(&format!("{base}/usertokens"), post(create))
        .route(&format!("{base}/usertokens/{{name}}"), delete(withdraw))
}

impl Authenticator for Tokens {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ClientError>> {
        self.user_of(token).boxed()
    }
}

/// A token to make.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invitation {
    subject: Subject,
    ttl_seconds: u64,
}

/// A token of a user to make.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    user: TokenUser,
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
    let Invitation {
        subject,
        ttl_seconds,
    } = asked(&request)?;
    let made = registrar(&api)?.invite(subject, ttl(ttl_seconds)?).await;
    let line = made.map_err(|error| not_made(&error))?;
    Ok(Json(json!({"line": line.reveal().as_str()})))
}

async fn create(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    let Wanted { user, ttl_seconds } = asked(&request)?;
    let tokens = registrar(&api)?.tokens();
    let made = tokens.create_for_user(user, ttl(ttl_seconds)?).await;
    let token = made.map_err(|error| not_made(&error))?;
    Ok(Json(json!({"token": token.reveal().as_str()})))
}

async fn withdraw(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    check_is_done(&request)?;
    let id = &request.key.name;
    let deleted = registrar(&api)?.tokens().delete_of_user(id).await;
    if !deleted.map_err(|error| Failure::unavailable(&error.to_string()))? {
        return Err(Failure::no_token(id));
    }
    Ok(Json(json!({"id": id})))
}

async fn revoke(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    let Revocation { node } = asked(&request)?;
    let revoked = registrar(&api)?.revoke(&node).await;
    revoked.map_err(|error| Failure::unavailable(&error.to_string()))?;
    Ok(Json(json!({"node": node})))
}

/// What a request asks for.
fn asked<T: DeserializeOwned>(request: &WriteRequest) -> Result<T, Failure> {
    check_is_done(request)?;
    let asked = serde_json::from_value(request.json()?);
    asked.map_err(|error| Failure::bad_request(error.to_string()))
}

fn check_is_done(request: &WriteRequest) -> Result<(), Failure> {
    if request.dry_run {
        return Err(Failure::bad_request("there is no dry run of this"));
    }
    Ok(())
}

fn ttl(seconds: u64) -> Result<Duration, Failure> {
    let ttl = Duration::from_secs(seconds);
    if ttl.is_zero() || ttl > TTL_MAX {
        return Err(Failure::bad_request("the ttl of a token is 1 s to 30 days"));
    }
    Ok(ttl)
}

fn not_made(error: &CreateError) -> Failure {
    match error {
        CreateError::Name(_) => Failure::bad_request(error.to_string()),
        CreateError::Store(_) | CreateError::Token(_) => Failure::unavailable(&error.to_string()),
    }
}

fn registrar(api: &Api) -> Result<&Registrar, Failure> {
    let none = "this control plane has no certificates: start it without --insecure";
    let registrar = api.registrar.as_ref();
    registrar.ok_or_else(|| Failure::bad_request(none))
}

//! Tokens and the revocation of nodes, which are no objects: `POST` makes a token, or revokes; tokens are also listed and deleted.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    routing::{delete, post},
};
use dormouse_cluster::{App, ClientError, Key};
use dormouse_trust::{Identity, diagnosis};
use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Api, Authenticator, Bearer, Failure, Kind, rights::review::Reviews, storage,
    write::request::WriteRequest,
};
use crate::trust::{CreateError, Listed, Registrar, Subject, TokenUser, Tokens};

/// The kind of which objects are only created, for discovery.
pub(super) const CREATED: Reviews = &[("noderevocations", false, "NodeRevocation")];
/// Those of which objects are also listed and deleted.
pub(super) const TOKENS: Reviews = &[
    (OF_JOINS, false, "JoinToken"),
    (OF_USERS, false, "UserToken"),
];
const OF_JOINS: &str = "jointokens";
const OF_USERS: &str = "usertokens";
/// Longest life of a token.
const TTL_MAX: Duration = Duration::from_hours(24 * 30);

pub(super) fn routes() -> Router<Arc<Api>> {
    let base = App::BASE;
    Router::new()
        .route(
            &format!("{base}/{OF_JOINS}"),
            post(invite).get(list_of_joins),
        )
        .route(&format!("{base}/{OF_JOINS}/{{name}}"), delete(withdraw))
        .route(&format!("{base}/noderevocations"), post(revoke))
        .route(
            &format!("{base}/{OF_USERS}"),
            post(create).get(list_of_users),
        )
        .route(&format!("{base}/{OF_USERS}/{{name}}"), delete(remove))
}

impl Authenticator for Tokens {
    fn bearer<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<Bearer>, ClientError>> {
        let found = self.user_of(token).map(|found| {
            let bearer = |Listed {
                              id,
                              subject,
                              expires,
                          }| Bearer {
                user: subject,
                id,
                expires,
            };
            Ok(found?.map(bearer))
        });
        found.boxed()
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

async fn list_of_joins(State(api): State<Arc<Api>>) -> Result<Json<Value>, Failure> {
    let listed = registrar(&api)?.tokens().of_joins().await;
    Ok(listed_as(
        "JoinTokenList",
        "subject",
        listed.map_err(|error| unavailable(&error))?,
    ))
}

async fn list_of_users(State(api): State<Arc<Api>>) -> Result<Json<Value>, Failure> {
    let listed = registrar(&api)?.tokens().of_users().await;
    Ok(listed_as(
        "UserTokenList",
        "user",
        listed.map_err(|error| unavailable(&error))?,
    ))
}

/// Tokens without their secrets, in the form of objects.
fn listed_as<S: Serialize>(kind: &str, field: &str, listed: Vec<Listed<S>>) -> Json<Value> {
    let items = listed.into_iter().map(|token| {
        let expires = diagnosis::at(token.expires);
        json!({"metadata": {"name": token.id}, field: token.subject, "expires": expires})
    });
    let items: Vec<Value> = items.collect();
    let version = App::api_version(&());
    Json(json!({"apiVersion": version, "kind": kind, "metadata": {}, "items": items}))
}

async fn withdraw(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    check_is_done(&request)?;
    let id = &request.key.name;
    let deleted = registrar(&api)?.tokens().withdraw(id).await;
    deleted_as(OF_JOINS, id, deleted)
}

async fn remove(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    check_is_done(&request)?;
    let (tokens, ends) = (registrar(&api)?.tokens().clone(), api.ends.clone());
    let id = request.key.name.clone();
    // Its watches end also if the store answers too late, or the client does not wait: it may be deleted all the same.
    let deleting = tokio::spawn(async move {
        let deleted = tokens.delete_of_user(&id).await;
        ends.end_token(&id);
        deleted_as(OF_USERS, &id, deleted)
    });
    deleting
        .await
        .map_err(|_panicked| Failure::internal("failed to delete the token"))?
}

fn deleted_as(
    kind: &str,
    id: &str,
    deleted: Result<bool, ClientError>,
) -> Result<Json<Value>, Failure> {
    if !deleted.map_err(|error| unavailable(&error))? {
        return Err(Failure::no_token(kind, id));
    }
    Ok(Json(json!({"id": id})))
}

async fn revoke(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Json<Value>, Failure> {
    let Revocation { node } = asked(&request)?;
    Identity::node(&node).map_err(|error| Failure::bad_request(error.to_string()))?;
    let object = storage::find::<Node>(&api, &Key::cluster_scoped(&node)).await?;
    let is_known = object.is_some() || api.fleet.is_connected(&node);
    let revoked = registrar(&api)?.revoke(&node).await;
    revoked.map_err(|error| unavailable(&error))?;
    api.ends.end_node(&node);
    let mut answer = json!({"node": node});
    if !is_known {
        answer["warning"] = json!(format!(
            "no node {node:?} has connected yet: is the name right? Certificates that it may have are refused from now on"
        ));
    }
    Ok(Json(answer))
}

fn unavailable(error: &ClientError) -> Failure {
    Failure::unavailable(&error.to_string())
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

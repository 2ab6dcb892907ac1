//! Writing: every way to change an object ends in one place, where it is decoded strictly and validated before
//! anything is stored.

mod draft;

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{Guard, Key};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    accept::{self, Sent},
    failure,
    patch::{self, Patch},
    read::{self, Names, key_of},
};
use draft::Part;

/// A write that keeps losing against other writers is given up after this many rounds.
const ATTEMPTS_MAX: u32 = 16;

/// What a client may ask of a write. Who writes (`fieldManager`) and how unknown fields are treated
/// (`fieldValidation`) is accepted and ignored: there is one owner, and unknown fields are always refused.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WriteQuery {
    dry_run: String,
}

impl WriteQuery {
    fn is_dry(&self) -> bool {
        self.dry_run == "All"
    }
}

/// The preconditions of a deletion.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    preconditions: Preconditions,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Creates an object that must not exist.
pub(super) async fn create<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let mut draft = parse(&headers, &body)?;
    let mut key = key_of(&names);
    draft::name::<K>(&mut draft, &mut key)?;
    insert::<K>(&api, draft, &key, query.is_dry()).await
}

/// Replaces an object.
pub(super) async fn replace<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let draft = parse(&headers, &body)?;
    update::<K>(&api, &key_of(&names), Part::Main, query.is_dry(), |_| {
        Ok(draft.clone())
    })
    .await
}

/// Replaces an object's status.
pub(super) async fn replace_status<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let draft = parse(&headers, &body)?;
    update::<K>(&api, &key_of(&names), Part::Status, query.is_dry(), |_| {
        Ok(draft.clone())
    })
    .await
}

/// Changes part of an object; an apply creates it where there is none.
pub(super) async fn patch<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let (patch, mut key) = (Patch::parse(&headers, &body)?, key_of(&names));
    if let Some(mut draft) = patch.creates()
        && read::find::<K>(&api, &key).await?.is_none()
    {
        draft::name::<K>(&mut draft, &mut key)?;
        return insert::<K>(&api, draft, &key, query.is_dry()).await;
    }
    update::<K>(&api, &key, Part::Main, query.is_dry(), |current| {
        patch.apply(current)
    })
    .await
}

/// Changes part of an object's status.
pub(super) async fn patch_status<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let patch = Patch::parse(&headers, &body)?;
    update::<K>(
        &api,
        &key_of(&names),
        Part::Status,
        query.is_dry(),
        |current| patch.apply(current),
    )
    .await
}

/// Removes an object.
pub(super) async fn delete<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<WriteQuery>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Result<Response, Failure> {
    accept::form(&headers)?;
    let options = if body.is_empty() {
        DeleteOptions::default()
    } else {
        read_options(&headers, &body)?
    };
    let key = key_of(&names);
    let dry = query.is_dry() || options.dry_run.iter().any(|one| one == "All");
    for _ in 0..ATTEMPTS_MAX {
        let object = read::find::<K>(&api, &key)
            .await?
            .ok_or_else(|| Failure::not_found::<K>(&key.name))?;
        let asked = &options.preconditions;
        let other_uid = asked.uid.is_some() && asked.uid != object.meta().uid;
        let other_revision = asked.resource_version.is_some()
            && asked.resource_version != object.meta().resource_version;
        if other_uid || other_revision {
            return Err(Failure::conflict::<K>(&key.name));
        }
        let removed = if dry {
            Ok(())
        } else {
            object.remove(&api, &Guard::at(object.revision())).await
        };
        match removed {
            // Somebody wrote the object in between: look again whether it may still be removed.
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure),
            Ok(()) => return Ok(Json(deleted(&object)).into_response()),
        }
    }
    Err(Failure::conflict::<K>(&key.name))
}

fn deleted<K: Kind>(object: &K) -> Value {
    let mut details = failure::details::<K>(&object.key().name, &[]);
    details["uid"] = json!(object.meta().uid);
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Value, Failure> {
    match accept::content_type(headers) {
        "application/json" => patch::json(body),
        "application/yaml" => patch::yaml(body),
        other => Err(Failure::unsupported_media(
            other,
            "application/json or application/yaml",
        )),
    }
}

fn read_options(headers: &HeaderMap, body: &[u8]) -> Result<DeleteOptions, Failure> {
    let value = parse(headers, body)?;
    serde_json::from_value(value)
        .map_err(|error| Failure::bad_request(format!("the body is no DeleteOptions: {error}")))
}

/// Stores a new object.
async fn insert<K: Kind>(
    api: &Api,
    draft: Value,
    key: &Key,
    dry: bool,
) -> Result<Response, Failure> {
    let object = draft::created::<K>(draft, key, api.claims.ranges())?;
    object.insertable(api).await?;
    let object = if dry {
        object
    } else {
        object.insert(api).await?
    };
    Ok((StatusCode::CREATED, Json(read::value(&object)?)).into_response())
}

/// Stores what `change` makes of an object, again and again until nobody wrote in between, unless the client named
/// the revision that it knows.
async fn update<K: Kind>(
    api: &Api,
    key: &Key,
    part: Part,
    dry: bool,
    change: impl Fn(&Value) -> Result<Value, Failure> + Send + Sync,
) -> Result<Response, Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let old = read::find::<K>(api, key)
            .await?
            .ok_or_else(|| Failure::not_found::<K>(&key.name))?;
        let current = read::value(&old)?;
        let wanted = change(&current)?;
        let new = draft::updated::<K>(wanted, (&old, &current), part, api.claims.ranges())?;
        if dry || read::value(&new)? == current {
            return Ok(Json(read::value(&new)?).into_response());
        }
        match api.client.update(&new, &Guard::at(old.revision())).await {
            // An explicit revision was compared with what was read, so the next round refuses it.
            Err(dormouse_cluster::ClientError::Conflict { .. }) => {}
            written => {
                let written = written.map_err(|error| Failure::of_client::<K>(&error, key))?;
                return Ok(Json(read::value(&written)?).into_response());
            }
        }
    }
    Err(Failure::conflict::<K>(&key.name))
}

//! Write requests: create, replace, patch and delete. Every object is decoded strictly and validated before it is stored.

pub(super) mod draft;
pub(super) mod evict;
mod protobuf;
pub(super) mod request;
pub(super) mod scale;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use dormouse_cluster::{Guard, Key};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, Failure, Kind, failure, kind::Rules, patch::Patch, query, rights, storage};
use draft::{Stored, Subresource};
use request::WriteRequest;

/// Attempts of a write that conflicts with other writers.
const ATTEMPTS_MAX: u32 = 16;

/// The body of a delete request.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    preconditions: Preconditions,
    dry_run: Vec<String>,
}

impl DeleteOptions {
    fn is_dry_run(&self) -> Result<bool, Failure> {
        query::is_dry_run(query::DELETE_OPTIONS, &self.dry_run)
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Preconditions {
    fn hold<K: Kind>(&self, object: &K) -> bool {
        let meta = object.meta();
        let revision = &self.resource_version;
        (self.uid.is_none() || self.uid == meta.uid)
            && (revision.is_none() || *revision == meta.resource_version)
    }
}

/// Creates an object; an error if it exists.
pub(super) async fn create<K: Kind>(
    State(api): State<Arc<Api>>,
    mut request: WriteRequest,
) -> Result<Response, Failure> {
    let mut draft = request.json()?;
    draft::set_name::<K>(&mut draft, &mut request.key)?;
    insert::<K>(&api, draft, &request).await
}

/// Replaces an object.
pub(super) async fn replace<K: Kind>(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let draft = request.json()?;
    let stored = update::<K>(&api, &request, Subresource::Main, |_| Ok(draft.clone()));
    Ok(Json(stored.await?).into_response())
}

/// Replaces an object's status.
pub(super) async fn replace_status<K: Kind>(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let draft = request.json()?;
    let stored = update::<K>(&api, &request, Subresource::Status, |_| Ok(draft.clone()));
    Ok(Json(stored.await?).into_response())
}

/// Patches an object; an apply patch creates an object that does not exist.
pub(super) async fn patch<K: Kind>(
    State(api): State<Arc<Api>>,
    mut request: WriteRequest,
) -> Result<Response, Failure> {
    let patch = Patch::parse(&request.headers, &request.body)?;
    if let Some(mut draft) = patch.creates()
        && storage::find::<K>(&api, &request.key).await?.is_none()
    {
        draft::set_name::<K>(&mut draft, &mut request.key)?;
        "create".clone_into(&mut request.attributes.verb);
        rights::require(&api, &request.user, &request.attributes).await?;
        return insert::<K>(&api, draft, &request).await;
    }
    let stored = update::<K>(&api, &request, Subresource::Main, |current| {
        patch.apply(current)
    });
    Ok(Json(stored.await?).into_response())
}

/// Patches an object's status.
pub(super) async fn patch_status<K: Kind>(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let patch = Patch::parse(&request.headers, &request.body)?;
    let stored = update::<K>(&api, &request, Subresource::Status, |current| {
        patch.apply(current)
    });
    Ok(Json(stored.await?).into_response())
}

/// Deletes an object.
pub(super) async fn delete<K: Kind>(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let options = delete_options(&request)?;
    let key = &request.key;
    let dry_run = options.is_dry_run()? || request.dry_run;
    for _ in 0..ATTEMPTS_MAX {
        let object = existing::<K>(&api, key).await?;
        if !options.preconditions.hold(&object) {
            return Err(Failure::conflict::<K>(&key.name));
        }
        object.check_removal(&api).await?;
        let deleted = if dry_run {
            Ok(())
        } else {
            object.remove(&api, &Guard::at(object.revision())).await
        };
        match deleted {
            // Another client wrote the object: the preconditions must be checked again.
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure),
            Ok(()) => return Ok(Json(success(&object)).into_response()),
        }
    }
    Err(Failure::conflict::<K>(&key.name))
}

/// The status of a successful delete.
fn success<K: Kind>(object: &K) -> Value {
    let mut details = failure::details::<K>(&object.key().name, &[]);
    details["uid"] = json!(object.meta().uid);
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

fn delete_options(request: &WriteRequest) -> Result<DeleteOptions, Failure> {
    if request.body.is_empty() {
        return Ok(DeleteOptions::default());
    }
    if request.is_protobuf() {
        return protobuf::delete_options(&request.body);
    }
    serde_json::from_value(request.json()?).map_err(|error| {
        Failure::bad_request(format!("cannot decode the body as DeleteOptions: {error}"))
    })
}

async fn existing<K: Kind>(api: &Api, key: &Key) -> Result<K, Failure> {
    storage::find::<K>(api, key)
        .await?
        .ok_or_else(|| Failure::not_found::<K>(&key.name))
}

/// Stores a new object.
async fn insert<K: Kind>(
    api: &Api,
    draft: Value,
    request: &WriteRequest,
) -> Result<Response, Failure> {
    let object = draft::created::<K>(draft, &request.key, &Rules::of(api))?;
    object.admit(None, &request.user, api).await?;
    let object = if request.dry_run {
        object.preview(None, api).await?
    } else {
        if K::NAMESPACED {
            let namespace = &request.key.namespace;
            api.namespaces.provide(api, namespace).await?;
        }
        object.insert(api).await?
    };
    Ok((StatusCode::CREATED, Json(storage::to_json(&object)?)).into_response())
}

/// Stores an object as changed by `change`, and returns it; reads it again and retries after a conflict, unless the client's draft has
/// a resource version.
async fn update<K: Kind>(
    api: &Api,
    request: &WriteRequest,
    subresource: Subresource,
    change: impl Fn(&Value) -> Result<Value, Failure> + Send + Sync,
) -> Result<Value, Failure> {
    let (key, rules) = (&request.key, Rules::of(api));
    for _ in 0..ATTEMPTS_MAX {
        let object = existing::<K>(api, key).await?;
        let stored = Stored {
            json: storage::to_json(&object)?,
            object,
        };
        let draft = change(&stored.json)?;
        let new = draft::updated::<K>(draft, &stored, subresource, &rules)?;
        new.admit(Some(&stored.object), &request.user, api).await?;
        if request.dry_run {
            return storage::to_json(&new.preview(Some(&stored.object), api).await?);
        }
        let json = storage::to_json(&new)?;
        if json == stored.json {
            return Ok(json);
        }
        match new.replace(&stored.object, api).await {
            // The next attempt compares the draft's resource version with the new one, and fails.
            Err(failure) if failure.is_conflict() => {}
            written => return storage::to_json(&written?),
        }
    }
    Err(Failure::conflict::<K>(&key.name))
}

//! The subresource `pods/eviction`, with which `kubectl drain` empties a node.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use dormouse_apps::owner_of;
use dormouse_cluster::{Guard, Object};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::{ATTEMPTS_MAX, DeleteOptions, existing, protobuf, request::WriteRequest, success};
use crate::api::{Api, Failure, Kind};

/// The body of an eviction.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Eviction {
    delete_options: DeleteOptions,
}

/// Evicts a pod. That of an app is marked: the controller starts another one, takes it from all nodes' entries, and removes it when no
/// node sends to it any more. Any other pod is deleted at once: no controller would remove it.
pub(in crate::api) async fn evict(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let options = options(&request)?;
    let dry_run = options.is_dry_run()? || request.dry_run;
    let key = &request.key;
    for _ in 0..ATTEMPTS_MAX {
        let pod = existing::<Pod>(&api, key).await?;
        if !options.preconditions.hold(&pod) {
            return Err(Failure::conflict::<Pod>(&key.name));
        }
        let evicted = if dry_run || pod.metadata.deletion_timestamp.is_some() {
            Ok(())
        } else {
            mark_or_delete(&api, &pod).await
        };
        match evicted {
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure),
            Ok(()) => return Ok((StatusCode::CREATED, Json(success(&pod))).into_response()),
        }
    }
    Err(Failure::conflict::<Pod>(&key.name))
}

fn options(request: &WriteRequest) -> Result<DeleteOptions, Failure> {
    if request.is_protobuf() {
        return protobuf::eviction(&request.body);
    }
    let eviction: Result<Eviction, _> = serde_json::from_value(request.json()?);
    let eviction = eviction.map_err(|error| {
        Failure::bad_request(format!("cannot decode the body as Eviction: {error}"))
    })?;
    Ok(eviction.delete_options)
}

async fn mark_or_delete(api: &Api, pod: &Pod) -> Result<(), Failure> {
    let guard = Guard::at(pod.revision());
    if owner_of(pod).is_none() {
        return pod.remove(api, &guard).await;
    }
    let mut marked = pod.clone();
    marked.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
    let written = api.client.update(marked, &guard).await;
    let failed = |error| Failure::of_client::<Pod>(&error, &pod.key());
    written.map(drop).map_err(failed)
}

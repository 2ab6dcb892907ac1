//! Watch requests: the changes of the selected objects as lines of JSON, from the requested revision on.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{
    ClientError, Key,
    client::{KeyRange, Previous, WatchEvent},
};
use futures::{Stream, StreamExt, stream};
use http::header;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    negotiate::Form,
    query::ListQuery,
    selector::Selector,
    storage,
    table::{self, Include},
};

/// Longest duration of a watch; clients resume it at their last revision.
const WATCH_MAX: Duration = Duration::from_mins(30);

/// Encodes the events of one watch.
struct Encoder {
    selector: Selector,
    form: Form,
    include: Include,
    /// Whether the next table has column definitions: only the first has, as in kube-apiserver.
    definitions: bool,
}

/// Serves a watch: the initial events if requested, then every change.
pub(super) async fn watch<K: Kind>(
    api: Arc<Api>,
    namespace: Option<String>,
    query: ListQuery,
    form: Form,
) -> Result<Response, Failure> {
    let mut encoder = Encoder {
        selector: query.selector()?,
        form,
        include: query.include(),
        definitions: true,
    };
    let (mut first, revision) =
        initial::<K>(&api, namespace.as_deref(), &query, &mut encoder).await?;
    let prefix = match &namespace {
        Some(namespace) => format!("{}{namespace}/", K::PREFIX),
        None => K::PREFIX.to_owned(),
    };
    let range = KeyRange::of_prefix(&prefix);
    let batches = api.client.watch(&range, revision, Previous::Included).await;
    let batches =
        batches.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
    let changes = batches.map(move |batch| lines::<K>(batch, &mut encoder));
    first.shrink_to_fit();
    let limit = query
        .timeout_seconds
        .map_or(WATCH_MAX, |seconds| Duration::from_secs(seconds.into()));
    let lines = stream::iter([first])
        .chain(changes)
        .filter(|lines| std::future::ready(!lines.is_empty()));
    let lines = until(lines, limit.min(WATCH_MAX), api);
    let body = Body::from_stream(lines.map(|lines| Ok::<_, Infallible>(Bytes::from(lines))));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Ends `lines` after `limit` or when the server shuts down.
fn until(
    lines: impl Stream<Item = Vec<u8>> + Send,
    limit: Duration,
    api: Arc<Api>,
) -> impl Stream<Item = Vec<u8>> + Send {
    let end = async move {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = api.shutdown.cancelled() => {}
        }
    };
    lines.take_until(Box::pin(end))
}

/// The initial events, and the revision after which the watch continues.
async fn initial<K: Kind>(
    api: &Api,
    namespace: Option<&str>,
    query: &ListQuery,
    encoder: &mut Encoder,
) -> Result<(Vec<u8>, u64), Failure> {
    let sends_initial_events = query.sends_initial_events();
    let version = query.resource_version.as_str();
    if !sends_initial_events && !matches!(version, "" | "0") {
        let revision = version.parse().map_err(|_not_a_number| {
            Failure::bad_request(format!(
                "invalid resourceVersion {version:?}: use the one of a list or an object"
            ))
        })?;
        return Ok((Vec::new(), revision));
    }
    let (objects, revision) = storage::list::<K>(api, namespace, &encoder.selector).await?;
    let mut lines = Vec::new();
    for object in objects {
        encoder.write::<K>("ADDED", object, &mut lines);
    }
    if sends_initial_events {
        let bookmark = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {
            "resourceVersion": revision.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        line("BOOKMARK", &bookmark, &mut lines);
    }
    Ok((lines, revision))
}

/// The lines of one batch. An object that no longer matches the selector is sent as deleted.
fn lines<K: Kind>(batch: Result<Vec<WatchEvent>, ClientError>, encoder: &mut Encoder) -> Vec<u8> {
    let mut lines = Vec::new();
    match batch {
        Ok(events) => events
            .iter()
            .for_each(|event| encoder.write_event::<K>(event, &mut lines)),
        Err(error) => line(
            "ERROR",
            &Failure::of_client::<K>(&error, &Key::cluster_scoped("")).status(),
            &mut lines,
        ),
    }
    lines
}

impl Encoder {
    fn write_event<K: Kind>(&mut self, event: &WatchEvent, lines: &mut Vec<u8>) {
        let selected = |bytes: &Option<Vec<u8>>| {
            let object: K = serde_json::from_slice(bytes.as_deref()?).ok()?;
            let mut value = serde_json::to_value(object).ok()?;
            value["metadata"]["resourceVersion"] = json!(event.revision.to_string());
            Some(value).filter(|value| self.selector.matches(value))
        };
        let (before, after) = (selected(&event.previous), selected(&event.value));
        match (before, after) {
            (None, Some(after)) => self.write::<K>("ADDED", after, lines),
            (Some(_), Some(after)) => self.write::<K>("MODIFIED", after, lines),
            (Some(before), None) => self.write::<K>("DELETED", before, lines),
            (None, None) => {}
        }
    }

    fn write<K: Kind>(&mut self, type_: &str, object: Value, lines: &mut Vec<u8>) {
        match self.form {
            Form::Object => line(type_, &object, lines),
            Form::Table => {
                let revision = object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                line(
                    type_,
                    &table::table::<K>(&[object], &revision, self.include, self.definitions),
                    lines,
                );
                self.definitions = false;
            }
        }
    }
}

fn line(type_: &str, object: &Value, lines: &mut Vec<u8>) {
    lines.extend(
        json!({"type": type_, "object": object})
            .to_string()
            .into_bytes(),
    );
    lines.push(b'\n');
}

//! Watch requests: the changes of the selected objects as lines of JSON, from the requested revision on.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{
    ClientError, Key,
    client::{KeyRange, Observed, Previous, WatchEvent},
};
use futures::{Stream, StreamExt, stream};
use http::header;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    negotiate::Form,
    position::{Position, check_watch, revision},
    query::ListQuery,
    selector::Selector,
    storage,
    table::{self, Include},
};

/// Longest duration of a watch; clients resume it at their last revision.
const WATCH_MAX: Duration = Duration::from_mins(30);
/// Interval of bookmarks, as in kube-apiserver.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// Time of the last bookmark before the end of a watch that is shorter than their interval, and the shortest interval.
const LAST_BOOKMARK: Duration = Duration::from_secs(1);

/// Encodes the events of one watch.
struct Encoder {
    selector: Selector,
    form: Form,
    include: Include,
    /// Whether the next table has column definitions: only the first has, as in kube-apiserver.
    definitions: bool,
    /// Whether the client takes bookmarks.
    bookmarks: bool,
    /// The newest revision that the client knows.
    known: u64,
}

/// Serves a watch: the initial events if requested, then every change.
pub(super) async fn watch<K: Kind>(
    api: Arc<Api>,
    namespace: Option<String>,
    query: ListQuery,
    form: Form,
) -> Result<Response, Failure> {
    check_watch(&query)?;
    let mut encoder = Encoder {
        selector: query.selector()?,
        form,
        include: query.include(),
        definitions: true,
        bookmarks: query.allows_bookmarks(),
        known: 0,
    };
    let (mut first, revision) =
        initial::<K>(&api, namespace.as_deref(), &query, &mut encoder).await?;
    encoder.known = revision;
    let limit = query
        .timeout_seconds
        .map_or(WATCH_MAX, |seconds| Duration::from_secs(seconds.into()));
    let limit = limit.min(WATCH_MAX);
    let range = KeyRange::of_prefix(&storage::prefix::<K>(namespace.as_deref()));
    let asks = limit
        .saturating_sub(LAST_BOOKMARK)
        .clamp(LAST_BOOKMARK, BOOKMARKS);
    let watch = api
        .client
        .watch_with_progress(&range, revision, Previous::Included, asks);
    let observed = watch.await;
    let observed =
        observed.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
    let changes = observed.map(move |observed| lines::<K>(observed, &mut encoder));
    first.shrink_to_fit();
    let lines = stream::iter([first])
        .chain(changes)
        .filter(|lines| std::future::ready(!lines.is_empty()));
    let lines = until(lines, limit, api);
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
    let known = revision(&query.resource_version)?;
    if !sends_initial_events && known > 0 {
        return Ok((Vec::new(), known));
    }
    let (objects, revision) = storage::list::<K>(api, namespace, &encoder.selector).await?;
    Position::Newest(known).check(revision)?;
    let mut lines = Vec::new();
    for object in objects {
        encoder.write::<K>("ADDED", object, &mut lines);
    }
    if sends_initial_events && encoder.bookmarks {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        bookmark::<K>(revision, Some(annotations), &mut lines);
    }
    Ok((lines, revision))
}

/// Writes a bookmark: all events up to this revision were sent.
fn bookmark<K: Kind>(revision: u64, annotations: Option<Value>, lines: &mut Vec<u8>) {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let bookmark = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    line("BOOKMARK", &bookmark, lines);
}

/// The lines of one batch. An object that no longer matches the selector is sent as deleted.
fn lines<K: Kind>(observed: Result<Observed, ClientError>, encoder: &mut Encoder) -> Vec<u8> {
    let mut lines = Vec::new();
    match observed {
        Ok(Observed::Events(events)) => events
            .iter()
            .for_each(|event| encoder.write_event::<K>(event, &mut lines)),
        Ok(Observed::Progress(revision)) => {
            if encoder.bookmarks && revision > encoder.known {
                encoder.known = revision;
                bookmark::<K>(revision, None, &mut lines);
            }
        }
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

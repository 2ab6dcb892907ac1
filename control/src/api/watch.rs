//! Watches: every change of what a client selected, as lines of JSON, from the revision that it names.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{ClientError, Key, client::WatchEvent};
use futures::{Stream, StreamExt, stream};
use http::header;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    accept::Form,
    read::{self, ListQuery, is_true},
    select::Selector,
    table::{self, Include},
};

/// A watch without a limit of its own ends after this long; clients begin anew where they were.
const WATCH_MAX: Duration = Duration::from_mins(30);

/// What is needed to write one change.
struct Writer {
    selector: Selector,
    form: Form,
    include: Include,
    /// Headings are sent with the first row only, as kube-apiserver does.
    headings: bool,
}

/// Answers a watch: first what exists when the client asks for it, then every change.
pub(super) async fn watch<K: Kind>(
    api: Arc<Api>,
    namespace: Option<String>,
    query: ListQuery,
    form: Form,
) -> Result<Response, Failure> {
    let mut writer = Writer {
        selector: query.selector()?,
        form,
        include: query.include(),
        headings: true,
    };
    let (mut first, revision) =
        initial::<K>(&api, namespace.as_deref(), &query, &mut writer).await?;
    let prefix = match &namespace {
        Some(namespace) => format!("{}{namespace}/", K::PREFIX),
        None => K::PREFIX.to_owned(),
    };
    let batches = api.client.watch(&prefix, revision).await;
    let batches =
        batches.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
    let changes = batches.map(move |batch| lines::<K>(batch, &mut writer));
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

/// Ends `lines` when the time is over or the server stops.
fn until(
    lines: impl Stream<Item = Vec<u8>> + Send,
    limit: Duration,
    api: Arc<Api>,
) -> impl Stream<Item = Vec<u8>> + Send {
    let over = async move {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = api.shutdown.cancelled() => {}
        }
    };
    lines.take_until(Box::pin(over))
}

/// The lines for what exists already, and the revision from which to go on.
async fn initial<K: Kind>(
    api: &Api,
    namespace: Option<&str>,
    query: &ListQuery,
    writer: &mut Writer,
) -> Result<(Vec<u8>, u64), Failure> {
    let wants_end = is_true(&query.send_initial_events);
    let known = query.resource_version.as_str();
    if !wants_end && !matches!(known, "" | "0") {
        let revision = known.parse().map_err(|_not_a_number| {
            Failure::bad_request(format!(
                "resourceVersion {known:?} is no revision: use one that a list or object gave"
            ))
        })?;
        return Ok((Vec::new(), revision));
    }
    let (objects, revision) = read::selected::<K>(api, namespace, &writer.selector).await?;
    let mut lines = Vec::new();
    for object in objects {
        writer.write::<K>("ADDED", object, &mut lines);
    }
    if wants_end {
        let mark = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {
            "resourceVersion": revision.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        line("BOOKMARK", &mark, &mut lines);
    }
    Ok((lines, revision))
}

/// The lines of one batch. What stops being selected is deleted, for this client.
fn lines<K: Kind>(batch: Result<Vec<WatchEvent>, ClientError>, writer: &mut Writer) -> Vec<u8> {
    let mut lines = Vec::new();
    match batch {
        Ok(events) => events
            .iter()
            .for_each(|event| writer.change::<K>(event, &mut lines)),
        Err(error) => line(
            "ERROR",
            &Failure::of_client::<K>(&error, &Key::cluster_scoped("")).status(),
            &mut lines,
        ),
    }
    lines
}

impl Writer {
    fn change<K: Kind>(&mut self, event: &WatchEvent, lines: &mut Vec<u8>) {
        let read = |bytes: &Option<Vec<u8>>| {
            let object: K = serde_json::from_slice(bytes.as_deref()?).ok()?;
            let mut value = serde_json::to_value(object).ok()?;
            value["metadata"]["resourceVersion"] = json!(event.revision.to_string());
            Some(value).filter(|value| self.selector.matches(value))
        };
        let (before, after) = (read(&event.previous), read(&event.value));
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
                    &table::table::<K>(&[object], &revision, self.include, self.headings),
                    lines,
                );
                self.headings = false;
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

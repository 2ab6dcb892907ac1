//! Watch requests: the changes of the selected objects as lines of JSON, from the requested revision on.

use std::{convert::Infallible, marker::PhantomData, mem, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{
    ClientError, Key,
    client::{KeyRange, Observed, Previous, WatchEvent, prefix_of},
};
use futures::{Stream, StreamExt, stream, stream::BoxStream};
use http::header;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    negotiate::Form,
    position::{Position, begins_with_all, check_watch, revision},
    query::ListQuery,
    selector::Selector,
    storage,
    table::{self, Include},
};

/// Objects of a part of the initial events: as many as the store gives at once.
const PART_LEN: usize = 1_000;
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
    let encoder = Encoder {
        selector: query.selector()?,
        form,
        include: query.include(),
        definitions: true,
        bookmarks: query.allows_bookmarks(),
        known: 0,
    };
    let limit = query
        .timeout_seconds
        .map_or(WATCH_MAX, |seconds| Duration::from_secs(seconds.into()));
    let limit = limit.min(WATCH_MAX);
    let mut watching = Watching::<K> {
        api: Arc::clone(&api),
        namespace,
        ends_list: query.sends_initial_events() && encoder.bookmarks,
        encoder,
        asks: limit
            .saturating_sub(LAST_BOOKMARK)
            .clamp(LAST_BOOKMARK, BOOKMARKS),
        stage: Stage::Over,
        kind: PhantomData,
    };
    let known = revision(&query.resource_version)?;
    let first = if begins_with_all(&query) {
        watching.part(&Position::Newest(known)).await?
    } else {
        watching.stage = watching.changes(known).await?;
        Vec::new()
    };
    let lines = stream::iter([first])
        .chain(stream::unfold(watching, Watching::next))
        .filter(|lines| std::future::ready(!lines.is_empty()));
    let lines = until(lines, limit, api);
    let body = Body::from_stream(lines.map(|lines| Ok::<_, Infallible>(Bytes::from(lines))));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A watch that is being served.
struct Watching<K> {
    api: Arc<Api>,
    namespace: Option<String>,
    /// Whether a bookmark ends the initial events.
    ends_list: bool,
    encoder: Encoder,
    /// Interval in which the store is asked for its revision.
    asks: Duration,
    stage: Stage,
    kind: PhantomData<fn() -> K>,
}

/// What comes next.
enum Stage {
    /// The initial events from here on.
    Initial(Position),
    /// The changes.
    Changes(BoxStream<'static, Result<Observed, ClientError>>),
    /// Nothing: an error was sent.
    Over,
}

impl<K: Kind> Watching<K> {
    /// The next lines. The initial events are read in parts while they are sent: no memory holds all of them.
    async fn next(mut self) -> Option<(Vec<u8>, Self)> {
        let lines = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Initial(position) => self.part(&position).await.unwrap_or_else(|failure| {
                let mut lines = Vec::new();
                line("ERROR", &failure.status(), &mut lines);
                lines
            }),
            Stage::Changes(mut observed) => {
                let lines = lines::<K>(observed.next().await?, &mut self.encoder);
                self.stage = Stage::Changes(observed);
                lines
            }
            Stage::Over => return None,
        };
        Some((lines, self))
    }

    /// A part of the initial events; after the last one, changes come.
    async fn part(&mut self, position: &Position) -> Result<Vec<u8>, Failure> {
        let (namespace, selector) = (self.namespace.as_deref(), &self.encoder.selector);
        let from = (position, Some(PART_LEN));
        let page = storage::page::<K>(&self.api, namespace, selector, from).await?;
        let mut lines = Vec::new();
        for object in page.objects {
            self.encoder.write::<K>("ADDED", object, &mut lines);
        }
        self.stage = if let Some(token) = page.next {
            Stage::Initial(Position::of_token(&token)?)
        } else {
            if self.ends_list {
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                bookmark::<K>(page.revision, Some(annotations), &mut lines);
            }
            self.changes(page.revision).await?
        };
        lines.shrink_to_fit();
        Ok(lines)
    }

    /// The changes after a revision.
    async fn changes(&mut self, revision: u64) -> Result<Stage, Failure> {
        self.encoder.known = revision;
        let range = KeyRange::of_prefix(&prefix_of::<K>(self.namespace.as_deref()));
        let client = &self.api.client;
        let observed = client.watch_with_progress(&range, revision, Previous::Included, self.asks);
        let observed = observed.await;
        let observed =
            observed.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
        Ok(Stage::Changes(observed.boxed()))
    }
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

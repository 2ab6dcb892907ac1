//! A small API server: lists, watches, creations, deletions, bindings and patches of the status of objects in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The longest body that is read.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Objects {
    /// By the path of their collection, and their namespace and name.
    all: BTreeMap<(String, String), Value>,
    /// Each change: the collection, and the event of a watch.
    log: Vec<(String, Value)>,
    requests: Vec<Asked>,
}

/// A request.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) place: Place,
    pub(crate) watches: bool,
    path: String,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Api {
    objects: Arc<Mutex<Objects>>,
    /// The length of the log.
    changed: watch::Sender<usize>,
}

/// The path of a request.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) collection: String,
    /// The namespace, empty for a cluster-scoped object.
    namespace: String,
    pub(crate) name: Option<String>,
    /// The subresource.
    pub(crate) part: Option<String>,
}

impl Place {
    fn parse(path: &str) -> Self {
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let prefix_len = if parts[0] == "api" { 2 } else { 3 };
        let (prefix, mut rest) = parts.split_at(prefix_len);
        let mut namespace = "";
        if let ["namespaces", name, below @ ..] = rest
            && !below.is_empty()
        {
            (namespace, rest) = (name, below);
        }
        let mut rest = rest.iter().map(|part| (*part).to_owned());
        let resource = rest.next().unwrap();
        Self {
            collection: format!("/{}/{resource}", prefix.join("/")),
            namespace: namespace.to_owned(),
            name: rest.next(),
            part: rest.next(),
        }
    }

    fn key(&self, name: &str) -> (String, String) {
        (
            self.collection.clone(),
            format!("{}/{name}", self.namespace),
        )
    }
}

impl Api {
    /// Serves on a port of the loopback interface; also returned is the URL.
    pub(crate) async fn start() -> (Self, String) {
        let api = Self {
            objects: Arc::default(),
            changed: watch::Sender::new(0),
        };
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (api, url)
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, collection: &str, object: &Value) {
        let meta = &object["metadata"];
        let namespace = meta["namespace"].as_str().unwrap_or_default();
        let name = meta["name"].as_str().unwrap();
        self.write(
            (collection.to_owned(), format!("{namespace}/{name}")),
            object.clone(),
        );
    }

    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Value> {
        let key = (collection.to_owned(), name.to_owned());
        self.objects.lock().all.get(&key).cloned()
    }

    /// All objects of a collection.
    pub(crate) fn list(&self, collection: &str) -> Vec<Value> {
        let objects = self.objects.lock();
        let all = objects.all.iter();
        let of = all.filter(|((other, _), _)| other == collection);
        of.map(|(_, object)| object.clone()).collect()
    }

    /// The requests that have written, of which the text has this part.
    pub(crate) fn writes(&self, part: &str) -> Vec<String> {
        let asked = self.asked().into_iter();
        let writes = asked.filter(|one| one.method != Method::GET);
        let lines = writes.map(|one| format!("{} {}", one.method, one.path));
        lines.filter(|line| line.contains(part)).collect()
    }

    /// All requests.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.objects.lock().requests.clone()
    }

    /// Returns once the condition holds for the objects; it is asked again after each change.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.changed.subscribe();
        let all = async {
            while !holds(self) {
                changes.changed().await.unwrap();
            }
        };
        let held = tokio::time::timeout(crate::cluster::DEADLINE, all).await;
        assert!(held.is_ok(), "{what}: {:?}", self.writes(""));
    }

    fn write(&self, key: (String, String), mut object: Value) -> Value {
        let mut objects = self.objects.lock();
        let revision = objects.log.len() + 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let kind = if objects.all.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        objects
            .log
            .push((key.0.clone(), json!({"type": kind, "object": object})));
        objects.all.insert(key, object.clone());
        self.changed.send_replace(revision);
        object
    }

    fn remove(&self, key: &(String, String)) -> Option<Value> {
        let mut objects = self.objects.lock();
        let mut object = objects.all.remove(key)?;
        let revision = objects.log.len() + 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        objects
            .log
            .push((key.0.clone(), json!({"type": "DELETED", "object": object})));
        self.changed.send_replace(revision);
        Some(object)
    }

    fn list_of(&self, collection: &str) -> Response {
        let items = self.list(collection);
        let revision = self.changed.borrow().to_string();
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": revision}, "items": items});
        axum::Json(list).into_response()
    }

    /// The changes of a collection after a revision, as they come.
    fn watch_of(&self, collection: String, after: usize) -> Response {
        let from = (self.clone(), self.changed.subscribe(), after);
        let events = stream::unfold(from, move |(api, mut changed, mut next)| {
            let collection = collection.clone();
            async move {
                loop {
                    changed.wait_for(|len| *len > next).await.ok()?;
                    let (of, event) = api.objects.lock().log[next].clone();
                    next += 1;
                    if of == collection {
                        let line = Bytes::from(format!("{event}\n"));
                        return Some((Ok::<_, std::io::Error>(line), (api, changed, next)));
                    }
                }
            }
        });
        Body::from_stream(events).into_response()
    }

    fn found(&self, key: &(String, String)) -> Response {
        match self.objects.lock().all.get(key) {
            Some(object) => axum::Json(object.clone()).into_response(),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        }
    }

    fn change(&self, method: &Method, place: &Place, object: &Value) -> Response {
        match (method, place.part.as_deref()) {
            (&Method::POST, Some("binding")) => self.bind(place, object),
            (&Method::PATCH, _) => self.patch(place, object),
            (&Method::POST | &Method::PUT, None) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                axum::Json(self.write(place.key(name), object.clone())).into_response()
            }
            (&Method::DELETE, None) => {
                match self.remove(&place.key(place.name.as_ref().unwrap())) {
                    Some(object) => axum::Json(object).into_response(),
                    None => failure(StatusCode::NOT_FOUND, "NotFound"),
                }
            }
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }

    fn bind(&self, place: &Place, binding: &Value) -> Response {
        let name = place.name.clone().unwrap();
        let key = place.key(&name);
        let Some(mut pod) = self.objects.lock().all.get(&key).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        let uid = &binding["metadata"]["uid"];
        if uid != &pod["metadata"]["uid"] || !pod["spec"]["nodeName"].is_null() {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        self.write(key, pod);
        axum::Json(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            .into_response()
    }

    /// Conditions are merged by their type, other fields replaced.
    fn patch(&self, place: &Place, patch: &Value) -> Response {
        let key = place.key(place.name.as_ref().unwrap());
        let Some(mut object) = self.objects.lock().all.get(&key).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        if place.part.is_none() {
            for (field, value) in patch.as_object().unwrap() {
                object[field] = value.clone();
            }
        }
        for (field, value) in patch["status"].as_object().into_iter().flatten() {
            let before = object["status"][field]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let Some(more) = value.as_array() else {
                object["status"][field] = value.clone();
                continue;
            };
            let is_new = |one: &Value| more.iter().all(|other| other["type"] != one["type"]);
            let mut all: Vec<_> = before.into_iter().filter(is_new).collect();
            all.extend(more.iter().cloned());
            object["status"][field] = all.into();
        }
        axum::Json(self.write(key, object)).into_response()
    }
}

fn failure(code: StatusCode, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
        "reason": reason, "code": code.as_u16()});
    (code, axum::Json(status)).into_response()
}

async fn answer(State(api): State<Api>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let place = Place::parse(head.uri.path());
    let query = head.uri.query().unwrap_or_default().to_owned();
    let parameter = |name: &str| {
        let mut all = query.split('&').filter_map(|pair| pair.split_once('='));
        all.find(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
    };
    let asked = Asked {
        method: head.method.clone(),
        place: place.clone(),
        watches: parameter("watch").is_some(),
        path: head.uri.path().to_owned(),
    };
    let watches = asked.watches;
    api.objects.lock().requests.push(asked);
    if head.method == Method::GET {
        return match &place.name {
            Some(name) => api.found(&place.key(name)),
            None if watches => {
                let after = parameter("resourceVersion").unwrap();
                api.watch_of(place.collection, after.parse().unwrap())
            }
            None => api.list_of(&place.collection),
        };
    }
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    api.change(&head.method, &place, &object)
}

//! A recording: the connections of the recorded client, and the state at its end.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse_vectors::Vectors;
use k8s_openapi::Resource;
use serde_json::Value;

/// The recordings about following.
const FOLLOWED: [&str; 12] = [
    "compaction",
    "compaction-no-cache",
    "compaction-own",
    "list-watch",
    "overload",
    "resource-versions",
    "restarts",
    "slow-reader",
    "store-reset",
    "watch-list",
    "watch-list-gate-off",
    "watch-list-refused",
];

/// Parameters of a query that the follower chooses by itself.
const FREE: [&str; 4] = ["fieldSelector", "labelSelector", "limit", "timeoutSeconds"];

/// The other parameters of a streaming list.
const STREAMING: [&str; 4] = [
    "allowWatchBookmarks",
    "resourceVersionMatch",
    "sendInitialEvents",
    "watch",
];

/// Selectors that the follower does not use.
const OTHER_SELECTORS: [&str; 3] = [
    "labelSelector=no%3Dsuch",
    "labelSelector=%21%21",
    "spec.color",
];

/// A request and its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Path without a namespace.
    pub(crate) path: String,
    /// Parameters of the query, decoded, without those that the follower chooses.
    pub(crate) query: BTreeMap<String, String>,
    /// HTTP status; none: refused.
    pub(crate) status: Option<u16>,
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Whether the response was complete.
    pub(crate) whole: bool,
}

/// A recording.
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) connections: Vec<Connection>,
    /// The objects at the end, by kind and key; none where the recording has no state.
    pub(crate) end: Option<Value>,
    /// Lists that the client had made before: their versions, and the objects.
    pub(crate) earlier: Vec<(&'static str, Value)>,
}

impl Connection {
    /// Whether it is the first part of a list of this kind.
    pub(crate) fn begins_list<T: Resource>(&self) -> bool {
        let asked: Vec<&str> = self.query.keys().map(String::as_str).collect();
        let streams = asked == STREAMING && self.query["sendInitialEvents"] == "true";
        self.is_of::<T>() && (asked.is_empty() || streams)
    }

    /// Whether it is about this kind.
    pub(crate) fn is_of<T: Resource>(&self) -> bool {
        self.path.ends_with(&format!("/{}", T::URL_PATH_SEGMENT))
    }
}

impl Recording {
    /// The connections with which the following of a kind may begin; none stands for the lists before the recording.
    pub(crate) fn starts<T: Resource>(&self) -> Vec<Option<usize>> {
        let numbered = self.connections.iter().enumerate();
        let found = numbered.filter(|(_, connection)| connection.begins_list::<T>());
        let mut starts: Vec<_> = found.map(|(number, _)| Some(number)).collect();
        let has_kind = |(_, objects): &(&str, Value)| objects.get(T::KIND).is_some();
        if self.earlier.iter().any(has_kind) {
            starts.push(None);
        }
        starts
    }
}

/// All recordings about following.
pub(crate) fn all() -> Vec<Recording> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let vectors = Vectors::find(&here, "DORMOUSE_KUBE_API_VECTORS");
    let mut all: Vec<_> = FOLLOWED.iter().map(|name| read(&vectors, name)).collect();
    let end_of = |name: &str| {
        let found = all.iter().find(|recording| recording.name == name).unwrap();
        found.end.clone().unwrap()
    };
    // It continues the other one; and a client that is ahead of its server has listed another one.
    let before = end_of("compaction");
    let ahead = end_of("resource-versions");
    for recording in &mut all {
        if recording.name == "compaction-no-cache" {
            // Its only list is the first page of one that was not read on.
            recording
                .connections
                .retain(|connection| !connection.query.is_empty());
            // The restarted server had written some objects again.
            let mut restarted = before.clone();
            merge(&mut restarted, recording.end.as_ref().unwrap());
            recording.earlier = vec![("236", before.clone()), ("277", restarted)];
        }
        if recording.name == "resource-versions" {
            recording.earlier = vec![("1000237", ahead.clone())];
        }
    }
    all
}

/// Replaces objects, by kind and key.
fn merge(objects: &mut Value, newer: &Value) {
    for (kind, newer) in newer.as_object().unwrap() {
        for (key, object) in newer.as_object().unwrap() {
            objects[kind][key] = object.clone();
        }
    }
}

fn read(vectors: &Vectors, name: &str) -> Recording {
    let mut recording = Recording {
        name: name.to_owned(),
        connections: Vec::new(),
        end: None,
        earlier: Vec::new(),
    };
    let mut numbers = BTreeMap::new();
    for event in vectors.named(name) {
        if let Some(end) = event.get("final") {
            recording.end = Some(end.clone());
        }
        let Some(direction) = event["dir"].as_str() else {
            continue;
        };
        let number = event["conn"].as_u64().unwrap();
        if direction == "request" {
            numbers.insert(number, recording.connections.len());
            recording.connections.push(request(&event));
            continue;
        }
        respond(
            &mut recording.connections[numbers[&number]],
            direction,
            &event,
        );
    }
    recording
        .connections
        .retain(|connection| !connection.path.is_empty());
    recording
}

/// A request; one that a follower does not make has an empty path.
fn request(event: &Value) -> Connection {
    let target = event["path"].as_str().unwrap();
    let (path, query) = parse(target);
    let other = OTHER_SELECTORS
        .iter()
        .any(|selector| target.contains(selector));
    let followed = event["method"] == "GET" && event["user"] == "agent" && !other;
    Connection {
        path: if followed { path } else { String::new() },
        query,
        ..Connection::default()
    }
}

fn respond(connection: &mut Connection, direction: &str, event: &Value) {
    match direction {
        "response" => {
            connection.status = Some(u16::try_from(event["status"].as_u64().unwrap()).unwrap());
        }
        "chunk" => {
            let body = event["body"].as_str().unwrap();
            connection.chunks.push(body.as_bytes().to_vec());
        }
        _ => connection.whole = event["how"] == "eof",
    }
}

/// The path without a namespace, and the parameters that the follower does not choose.
pub(crate) fn parse(target: &str) -> (String, BTreeMap<String, String>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = match path.split_once("/namespaces/") {
        Some((start, rest)) => format!(
            "{start}/{}",
            rest.split_once('/').map_or("", |(_, end)| end)
        ),
        None => path.to_owned(),
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let kept = pairs.filter(|(name, _)| !FREE.contains(name));
    let query = kept.map(|(name, value)| (name.to_owned(), decode(value)));
    (path, query.collect())
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first == b'%' {
            let hex = std::str::from_utf8(&rest[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).unwrap()
}

//! One replay: a follower, and a server that answers as it was recorded.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use dormouse_agent_follow::{Event, Follower, Head, Key, Scope};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::recording::{Connection, Recording, parse};

/// A follower that asks more often than this goes in circles.
const REQUESTS_MAX: usize = 60;

/// A kind that is followed.
pub(crate) trait Followed:
    Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Serialize
{
}

impl<T: Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned + Serialize> Followed for T {}

/// The response, of several that were recorded for one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    First,
    /// The last one; and the first check of a version passes, as at another server.
    Last,
}

/// The parts in which a response arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    AsRecorded,
    Bytes,
    Random(u64),
    /// At random, and compressed.
    Gzip(u64),
}

impl Cut {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let random = (1..=3).map(Self::Random);
        [Self::AsRecorded, Self::Bytes]
            .into_iter()
            .chain(random)
            .chain([Self::Gzip(9)])
    }

    fn parts(self, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut bytes = chunks.concat();
        let longest = match self {
            Self::AsRecorded => return chunks.to_vec(),
            Self::Bytes => 1,
            Self::Random(seed) => {
                random.seed(seed);
                3_000
            }
            Self::Gzip(seed) => {
                random.seed(seed);
                bytes = compress(&bytes);
                500
            }
        };
        let (mut parts, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let (part, more) = rest.split_at(random.usize(1..=longest).min(rest.len()));
            parts.push(part.to_vec());
            rest = more;
        }
        parts
    }
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) events: usize,
    pub(crate) objects: usize,
    pub(crate) differences: Vec<String>,
}

/// A replay.
pub(crate) struct Run<'a, T> {
    recording: &'a Recording,
    start: Option<usize>,
    choice: Choice,
    cut: Cut,
    follower: Follower<T>,
    held: BTreeMap<String, Value>,
    used: Vec<usize>,
    earlier: Vec<&'a (&'static str, Value)>,
    streams: usize,
    /// Complete lists.
    lists: usize,
    /// Objects of the last list that a recording without a final state has.
    listed: BTreeMap<String, Value>,
    outcome: Outcome,
}

impl<'a, T: Followed> Run<'a, T> {
    pub(crate) fn new(
        recording: &'a Recording,
        start: Option<usize>,
        choice: Choice,
        cut: Cut,
    ) -> Self {
        let earlier = if start.is_none() {
            recording.earlier.iter().rev().collect()
        } else {
            Vec::new()
        };
        let scope = if T::KIND == "Node" {
            Scope::named::<T>("node-a")
        } else {
            Scope::proxied::<T>()
        };
        Self {
            recording,
            start,
            choice,
            cut,
            follower: Follower::new(scope),
            held: BTreeMap::new(),
            used: Vec::new(),
            earlier,
            streams: 0,
            lists: 0,
            listed: BTreeMap::new(),
            outcome: Outcome::default(),
        }
    }

    /// Replays until the recording has no response any more.
    pub(crate) fn play(mut self) -> Outcome {
        while let Some(response) = self.request() {
            self.outcome.requests += 1;
            if self.outcome.requests > REQUESTS_MAX {
                self.differ("it goes in circles");
                break;
            }
            self.receive(&response);
        }
        self.compare();
        self.outcome
    }

    fn differ(&mut self, what: &str) {
        let Self {
            recording,
            start,
            choice,
            cut,
            ..
        } = self;
        let place = format!(
            "{} {} from {start:?}, {choice:?}, {cut:?}",
            recording.name,
            T::KIND
        );
        self.outcome.differences.push(format!("{place}: {what}"));
    }

    fn request(&mut self) -> Option<Connection> {
        let request = self.follower.request(Duration::from_mins(5));
        let (path, query) = parse(&request.target);
        let is_stream = query.contains_key("sendInitialEvents");
        self.streams += usize::from(is_stream);
        let is_check = query.contains_key("resourceVersionMatch") && !is_stream;
        if self.outcome.requests == 0
            && let Some(start) = self.start
            && (self.recording.connections[start]
                .query
                .contains_key("sendInitialEvents")
                == is_stream)
        {
            self.used.push(start);
            return Some(self.recording.connections[start].clone());
        }
        if query.is_empty()
            && let Some((version, objects)) = self.earlier.pop()
        {
            let objects = objects[T::KIND].as_object().unwrap().values();
            let objects: Vec<_> = objects.cloned().collect();
            return Some(list(version, &objects));
        }
        if is_check {
            return Some(self.check(&path, &query));
        }
        if let Some(found) = self.recorded(&path, &query) {
            return Some(found);
        }
        self.unrecorded(&query, is_stream)
    }

    /// The recorded response; each is used once.
    fn recorded(&mut self, path: &str, query: &BTreeMap<String, String>) -> Option<Connection> {
        let numbered = self.recording.connections.iter().enumerate();
        let from = self.start.unwrap_or_default();
        let mut found = numbered.filter(|(number, connection)| {
            *number >= from
                && !self.used.contains(number)
                && connection.path == path
                && connection.query == *query
        });
        let (number, connection) = match self.choice {
            // A watch of the same version and a list are answered in their order.
            Choice::Last if query.contains_key("continue") => found.next_back(),
            _ => found.next(),
        }?;
        self.used.push(number);
        Some(connection.clone())
    }

    /// The recorded response of a check, each time; else it passes.
    fn check(&self, path: &str, query: &BTreeMap<String, String>) -> Connection {
        let mut all = self.recording.connections.iter();
        let found = all.find(|connection| connection.path == path && connection.query == *query);
        let passes = self.choice == Choice::Last && self.outcome.requests < 4;
        match found.filter(|_| !passes) {
            Some(found) => found.clone(),
            None => list("1", &[]),
        }
    }

    /// What the server would have answered; none at the end of the recording.
    fn unrecorded(
        &mut self,
        query: &BTreeMap<String, String>,
        is_stream: bool,
    ) -> Option<Connection> {
        if is_stream {
            return Some(status(422, "no streaming lists"));
        }
        if query.contains_key("continue") {
            return Some(status(410, "the token has expired"));
        }
        if query.contains_key("watch") {
            let numbered = self.recording.connections.iter().enumerate();
            let from = self.start.unwrap_or_default();
            let mut lists = numbered.filter(|(number, connection)| {
                *number >= from
                    && !self.used.contains(number)
                    && connection.begins_list::<T>()
                    && connection.status == Some(200)
            });
            let event = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}});
            let is_more = lists.next().is_some() || !self.earlier.is_empty();
            return is_more.then(|| lines(&event));
        }
        None
    }

    fn receive(&mut self, response: &Connection) {
        let (held, outcome, listed) = (&mut self.held, &mut self.outcome, &mut self.listed);
        let lists = &mut self.lists;
        let mut take = |event: Event<T>| {
            outcome.events += 1;
            match event {
                Event::Applied(object) => {
                    let key = key(&Key {
                        namespace: object
                            .metadata()
                            .namespace
                            .as_deref()
                            .unwrap_or_default()
                            .into(),
                        name: object.metadata().name.as_deref().unwrap().into(),
                    });
                    held.insert(key, serde_json::to_value(object).unwrap());
                }
                Event::Deleted(gone) => {
                    let gone = key(&gone);
                    if held.remove(&gone).is_none() {
                        outcome
                            .differences
                            .push(format!("{gone} was deleted twice"));
                    }
                }
                Event::Listed { objects } => {
                    *lists += 1;
                    listed.clone_from(held);
                    if objects != held.len() {
                        outcome
                            .differences
                            .push(format!("{objects} objects listed, {} held", held.len()));
                    }
                }
                Event::Unreadable { key, what } => {
                    outcome.differences.push(format!("{key:?}: {what}"));
                }
            }
        };
        if let Some(code) = response.status {
            let retry_after = (code == 429).then(|| Duration::from_secs(1));
            self.follower.head(Head {
                status: code,
                gzip: matches!(self.cut, Cut::Gzip(_)),
                retry_after,
            });
            for part in self.cut.parts(&response.chunks) {
                if !self.follower.body(&part, &mut take) {
                    break;
                }
            }
        }
        let ended = self.follower.end(response.whole, &mut take);
        if response.status == Some(429) && ended.retry_after != Some(Duration::from_secs(1)) {
            self.differ("retry-after was not taken");
        }
    }

    /// Compares what the follower holds with the recorded state, or with the last list.
    fn compare(&mut self) {
        let wanted: BTreeMap<String, Value> =
            match self.recording.end.as_ref().map(|end| &end[T::KIND]) {
                Some(Value::Object(objects)) => objects
                    .iter()
                    .map(|(key, object)| {
                        let object: T = serde_json::from_value(object.clone()).unwrap();
                        (
                            key.trim_start_matches('/').to_owned(),
                            serde_json::to_value(object).unwrap(),
                        )
                    })
                    .collect(),
                _ => self.listed.clone(),
            };
        let held = std::mem::take(&mut self.held);
        self.outcome.objects += wanted.len();
        for (key, object) in &wanted {
            if held.get(key) != Some(object) {
                self.differ(&format!(
                    "{key} is {:?}, not {object}",
                    held.get(key).map(Value::to_string)
                ));
            }
        }
        for key in held.keys().filter(|key| !wanted.contains_key(*key)) {
            self.differ(&format!("{key} is too much"));
        }
        if wanted.is_empty() || self.lists == 0 {
            self.differ("no list was complete");
        }
        if self.recording.name.starts_with("watch-list-") && self.streams != 1 {
            self.differ(&format!("{} streaming lists", self.streams));
        }
    }
}

fn key(key: &Key) -> String {
    if key.namespace.is_empty() {
        key.name.to_string()
    } else {
        format!("{}/{}", key.namespace, key.name)
    }
}

fn response(code: u16, body: &Value) -> Connection {
    Connection {
        status: Some(code),
        chunks: vec![body.to_string().into_bytes()],
        whole: true,
        ..Connection::default()
    }
}

fn list(version: &str, objects: &[Value]) -> Connection {
    response(
        200,
        &json!({"metadata": {"resourceVersion": version}, "items": objects}),
    )
}

fn status(code: u16, message: &str) -> Connection {
    response(
        code,
        &json!({"kind": "Status", "code": code, "message": message}),
    )
}

fn lines(event: &Value) -> Connection {
    let mut connection = response(200, event);
    connection.chunks.push(b"\n".to_vec());
    connection
}

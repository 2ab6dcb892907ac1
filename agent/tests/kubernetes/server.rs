//! A small API server in the test's network namespace: lists, pages, watches and streaming lists of objects in memory, over
//! HTTP or TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};

pub(crate) const SERVICES: &str = "/api/v1/services";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub(crate) const NODES: &str = "/api/v1/nodes";

/// Objects of a page, whatever the client asks for.
const PAGE: usize = 3;

/// The folder of the server's certificate, its authority's and that of another authority with the same name.
pub(crate) const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubernetes/tls");

/// The server.
pub(crate) struct Server {
    shared: Arc<Shared>,
    scheme: &'static str,
    port: u16,
}

/// A client's connection.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    streams: bool,
    away: bool,
    version: u64,
    /// Watches from older versions get 410.
    oldest: u64,
    /// By path and name.
    objects: BTreeMap<(String, String), Value>,
    /// Path, version and line.
    events: Vec<(String, u64, String)>,
    /// Connections of an older epoch are closed.
    epoch: u64,
    /// The requests: method, path, and whether they are watches.
    requests: BTreeSet<(String, String, bool)>,
    /// The path whose watches break off in the middle of the last line.
    broken: Option<String>,
    /// The only token that is accepted; none: all requests are.
    token: Option<String>,
    /// The status of the answers to the next writes.
    refusals: Vec<u16>,
    /// The objects that clients have created, with their paths.
    created: Vec<(String, Value)>,
}

impl Server {
    /// Starts it, with streaming lists or without.
    pub(crate) fn start(streams: bool) -> Self {
        Self::serve(streams, "http", |stream| Ok(Box::new(stream)))
    }

    /// Starts it with TLS.
    pub(crate) fn with_tls() -> Self {
        let certificate = CertificateDer::from_pem_file(format!("{TLS}/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{TLS}/server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        let config = Arc::new(config.unwrap());
        Self::serve(true, "https", move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            Ok(Box::new(StreamOwned::new(session, stream)))
        })
    }

    fn serve<F>(streams: bool, scheme: &'static str, accept: F) -> Self
    where
        F: Fn(TcpStream) -> io::Result<Box<dyn Stream>> + Clone + Send + 'static,
    {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.state.lock();
            (state.streams, state.version) = (streams, 1_000);
        }
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, accept) = (Arc::clone(&serving), accept.clone());
                thread::spawn(move || {
                    // A client that has gone is no failure.
                    let _ = accept(stream).and_then(|stream| shared.answer(stream));
                });
            }
        });
        Self {
            shared,
            scheme,
            port,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://[::1]:{}", self.scheme, self.port)
    }

    /// Closes all connections, and accepts only requests with this token.
    pub(crate) fn accept_only(&self, token: &str) {
        self.change(|state| {
            state.token = Some(token.to_owned());
            state.broken = None;
            state.epoch += 1;
        });
    }

    /// Refuses the next writes with these codes, the last one first.
    pub(crate) fn refuse_writes(&self, codes: &[u16]) {
        self.change(|state| state.refusals.extend(codes));
    }

    /// The object of this name, as it is now.
    pub(crate) fn object(&self, path: &str, name: &str) -> Value {
        let state = self.shared.state.lock();
        state.objects[&(path.to_owned(), name.to_owned())].clone()
    }

    /// The objects that clients have created at a path.
    pub(crate) fn created(&self, path: &str) -> Vec<Value> {
        let state = self.shared.state.lock();
        let of = state.created.iter().filter(|(known, _)| known == path);
        of.map(|(_, object)| object.clone()).collect()
    }

    /// All requests since the start: method, path, and whether they are watches.
    pub(crate) fn requests(&self) -> BTreeSet<(String, String, bool)> {
        self.shared.state.lock().requests.clone()
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.change(|state| state.put(path, object));
    }

    pub(crate) fn delete(&self, path: &str, name: &str) {
        self.change(|state| state.delete(path, name));
    }

    /// Replaces an object; open watches of the path get only the first half of the event.
    pub(crate) fn break_off(&self, path: &str, object: Value) {
        self.change(|state| {
            state.put(path, object);
            state.broken = Some(path.to_owned());
            state.epoch += 1;
        });
    }

    /// Closes all connections, and accepts none.
    pub(crate) fn go_away(&self) {
        self.change(|state| {
            state.away = true;
            state.broken = None;
            state.epoch += 1;
        });
    }

    /// Accepts connections again, without the events from before.
    pub(crate) fn come_back(&self) {
        self.change(|state| {
            state.away = false;
            state.version += 1;
            state.oldest = state.version;
            state.events.clear();
        });
    }

    /// Goes back to old versions, and makes these changes there.
    pub(crate) fn restore(&self, change: impl FnOnce(&Self)) {
        self.go_away();
        self.change(|state| {
            (state.version, state.oldest) = (1, 1);
            state.events.clear();
        });
        change(self);
        self.change(|state| state.away = false);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock());
        self.shared.changed.notify_all();
    }
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["uid"] = format!("{path}/{name}").into();
        let key = (path.to_owned(), name);
        let kind = if self.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.note(path, &json!({"type": kind, "object": object}));
        self.objects.insert(key, object);
    }

    fn delete(&mut self, path: &str, name: &str) {
        self.version += 1;
        let key = (path.to_owned(), name.to_owned());
        let mut object = self.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.note(path, &json!({"type": "DELETED", "object": object}));
    }

    fn note(&mut self, path: &str, event: &Value) {
        let line = format!("{event}\n");
        self.events.push((path.to_owned(), self.version, line));
    }

    /// Carries out a write. An error is the status of the answer.
    fn write(&mut self, request: &Request) -> Result<Value, u16> {
        if let Some(code) = self.refusals.pop() {
            return Err(code);
        }
        if request.method == "POST" {
            let made = (request.path.clone(), request.body.clone());
            self.created.push(made);
            return Ok(request.body.clone());
        }
        let (object, is_status) = match request.path.strip_suffix("/status") {
            Some(object) => (object, true),
            None => (request.path.as_str(), false),
        };
        let (path, name) = object.rsplit_once('/').unwrap();
        let found = self.objects.get(&(path.to_owned(), name.to_owned()));
        let mut object = found.ok_or(404_u16)?.clone();
        if is_status {
            merge_conditions(&mut object, &request.body);
        } else {
            patch(&mut object, &request.body)?;
        }
        self.put(path, object.clone());
        Ok(object)
    }

    fn of(&self, path: &str) -> Vec<&Value> {
        let all = self.objects.iter();
        let of = all.filter(|((known, _), _)| known == path);
        of.map(|(_, object)| object).collect()
    }
}

/// A parsed request.
struct Request {
    body: Value,
    token: Option<String>,
    method: String,
    path: String,
    query: BTreeMap<String, String>,
}

impl Request {
    fn read(stream: &mut dyn Stream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut lines = reader.by_ref().lines();
        let first = lines
            .next()
            .unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))?;
        let (mut token, mut length) = (None, 0);
        for line in lines {
            let line = line?;
            if line.is_empty() {
                break;
            }
            let bearer = line.strip_prefix("authorization: Bearer ");
            token = bearer.map(str::to_owned).or(token);
            let announced = line.strip_prefix("content-length: ");
            length = announced.map_or(length, |text| text.parse().unwrap());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = first.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Ok(Self {
            body: serde_json::from_slice(&body).unwrap_or_default(),
            token,
            method,
            path: path.to_owned(),
            query: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    fn version(&self) -> u64 {
        self.get("resourceVersion")
            .map_or(0, |version| version.parse().unwrap())
    }
}

impl Shared {
    fn answer(&self, mut stream: Box<dyn Stream>) -> io::Result<()> {
        let request = Request::read(&mut *stream)?;
        let (away, streams, refused) = {
            let mut state = self.state.lock();
            let watches = request.query.contains_key("watch");
            let line = (request.method.clone(), request.path.clone(), watches);
            state.requests.insert(line);
            let refused = state.token.is_some() && state.token != request.token;
            (state.away, state.streams, refused)
        };
        if away {
            return Ok(());
        }
        if refused {
            return refuse(&mut *stream, 401);
        }
        if request.method != "GET" {
            return self.write(&mut *stream, &request);
        }
        let initial = request.query.contains_key("sendInitialEvents");
        match request.get("watch") {
            Some(_) if initial && !streams => refuse(&mut *stream, 422),
            Some(_) => self.watch(&mut *stream, &request, initial),
            None => self.list(&mut *stream, &request),
        }
    }

    fn write(&self, stream: &mut dyn Stream, request: &Request) -> io::Result<()> {
        let written = self.state.lock().write(request);
        self.changed.notify_all();
        match written {
            Ok(object) => respond(stream, 200, &object.to_string()),
            Err(code) => refuse(stream, code),
        }
    }

    fn list(&self, stream: &mut dyn Stream, request: &Request) -> io::Result<()> {
        let (version, newest, items) = {
            let state = self.state.lock();
            let items: Vec<_> = state.of(&request.path).into_iter().cloned().collect();
            (request.version(), state.version, items)
        };
        if version > newest {
            return refuse(stream, 504);
        }
        let start: usize = request
            .get("continue")
            .map_or(0, |token| token.parse().unwrap());
        let end = (start + PAGE).min(items.len());
        let mut meta = json!({"resourceVersion": newest.to_string()});
        if end < items.len() {
            meta["continue"] = end.to_string().into();
        }
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items[start..end]});
        respond(stream, 200, &list.to_string())
    }

    fn watch(&self, stream: &mut dyn Stream, request: &Request, initial: bool) -> io::Result<()> {
        let mut version = request.version();
        let (epoch, oldest) = {
            let state = self.state.lock();
            (state.epoch, state.oldest)
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        if initial {
            let (lines, newest) = self.initial(&request.path);
            version = newest;
            chunk(stream, &lines)?;
        } else if version < oldest {
            chunk(
                stream,
                "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n",
            )?;
            return stream.write_all(b"0\r\n\r\n");
        }
        loop {
            let mut state = self.state.lock();
            let news = |state: &State| -> Vec<(u64, String)> {
                let events = state.events.iter();
                let new = events.filter(|(path, at, _)| *path == request.path && *at > version);
                new.map(|(_, at, line)| (*at, line.clone())).collect()
            };
            while state.epoch == epoch && news(&state).is_empty() {
                self.changed.wait(&mut state);
            }
            let new = news(&state);
            let is_over = state.epoch != epoch;
            let is_broken = is_over && state.broken.as_ref() == Some(&request.path);
            drop(state);
            let lines: String = new.iter().map(|(_, line)| line.as_str()).collect();
            if is_broken {
                let half = &lines[..lines.len() / 2];
                write!(stream, "{:x}\r\n{half}", lines.len())?;
            }
            if is_over {
                return Ok(());
            }
            chunk(stream, &lines)?;
            version = new.last().map_or(version, |(at, _)| *at);
        }
    }

    /// The lines of all objects and of the bookmark after them, and their version.
    fn initial(&self, path: &str) -> (String, u64) {
        let state = self.state.lock();
        let added = state.of(path).into_iter();
        let added = added.map(|object| json!({"type": "ADDED", "object": object}));
        let meta = json!({
            "resourceVersion": state.version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        });
        let end = json!({"type": "BOOKMARK", "object": {"metadata": meta}});
        let lines: Vec<_> = added
            .chain([end])
            .map(|event| format!("{event}\n"))
            .collect();
        (lines.concat(), state.version)
    }
}

/// A strategic merge patch of the conditions, which are merged by type.
fn merge_conditions(object: &mut Value, patch: &Value) {
    let mut conditions = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for new in patch["status"]["conditions"].as_array().unwrap() {
        conditions.retain(|condition| condition["type"] != new["type"]);
        conditions.push(new.clone());
    }
    object["status"]["conditions"] = conditions.into();
}

/// A JSON patch of tests and removals.
fn patch(object: &mut Value, operations: &Value) -> Result<(), u16> {
    for operation in operations.as_array().ok_or(400_u16)? {
        let path = operation["path"].as_str().unwrap();
        match operation["op"].as_str() {
            Some("test") if object.pointer(path) == Some(&operation["value"]) => {}
            Some("remove") => {
                let (list, index) = path.rsplit_once('/').unwrap();
                let list = object.pointer_mut(list).and_then(Value::as_array_mut);
                list.ok_or(422_u16)?.remove(index.parse().unwrap());
            }
            _ => return Err(422),
        }
    }
    Ok(())
}

fn refuse(stream: &mut dyn Stream, code: u16) -> io::Result<()> {
    respond(
        stream,
        code,
        &json!({"kind": "Status", "code": code, "message": "no"}).to_string(),
    )
}

fn respond(stream: &mut dyn Stream, code: u16, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn chunk(stream: &mut dyn Stream, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write!(stream, "{:x}\r\n{text}\r\n", text.len())
}

//! The answers of the server: lists in pages, watches, streaming lists, and writes.

use std::io;

use serde_json::json;

use super::request::{Request, chunk, refuse, respond};
use super::state::State;
use super::{Shared, Stream};

/// Objects of a page, whatever the client asks for.
const PAGE: usize = 3;

impl Shared {
    pub(super) fn answer(&self, mut stream: Box<dyn Stream>) -> io::Result<()> {
        let request = Request::read(&mut *stream)?;
        let (away, streams, epoch, refused) = {
            let mut state = self.state.lock();
            let watches = request.query.contains_key("watch");
            let line = (request.method.clone(), request.path.clone(), watches);
            state.requests.insert(line);
            let refused = state.token.is_some() && state.token != request.token;
            (state.away, state.streams, state.epoch, refused)
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
        match request.get("watch") {
            Some(_) if request.wants_initial() && !streams => refuse(&mut *stream, 422),
            Some(_) => self.watch(&mut *stream, &request, epoch),
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

    fn watch(&self, stream: &mut dyn Stream, request: &Request, epoch: u64) -> io::Result<()> {
        let mut version = request.version();
        let oldest = self.state.lock().oldest;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        if request.wants_initial() {
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
        self.state
            .lock()
            .watched
            .insert(request.path.clone(), epoch);
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

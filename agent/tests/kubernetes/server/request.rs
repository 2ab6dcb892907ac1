//! Requests as the server reads them, and its responses.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

use serde_json::{Value, json};

use super::Stream;

/// A parsed request.
pub(super) struct Request {
    pub(super) body: Value,
    pub(super) token: Option<String>,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
}

impl Request {
    pub(super) fn read(stream: &mut dyn Stream) -> io::Result<Self> {
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

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// Whether a watch begins with all objects.
    pub(super) fn wants_initial(&self) -> bool {
        self.query.contains_key("sendInitialEvents")
    }

    pub(super) fn version(&self) -> u64 {
        self.get("resourceVersion")
            .map_or(0, |version| version.parse().unwrap())
    }
}

pub(super) fn refuse(stream: &mut dyn Stream, code: u16) -> io::Result<()> {
    respond(
        stream,
        code,
        &json!({"kind": "Status", "code": code, "message": "no"}).to_string(),
    )
}

pub(super) fn respond(stream: &mut dyn Stream, code: u16, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

pub(super) fn chunk(stream: &mut dyn Stream, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write!(stream, "{:x}\r\n{text}\r\n", text.len())
}

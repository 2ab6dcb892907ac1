//! The objects of the server, and the changes that writes make.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::request::Request;

/// The objects, and what the server does.
#[derive(Default)]
pub(super) struct State {
    pub(super) streams: bool,
    pub(super) away: bool,
    pub(super) version: u64,
    /// Watches from older versions get 410.
    pub(super) oldest: u64,
    /// By path and name.
    pub(super) objects: BTreeMap<(String, String), Value>,
    /// Path, version and line.
    pub(super) events: Vec<(String, u64, String)>,
    /// Connections of an older epoch are closed.
    pub(super) epoch: u64,
    /// The epoch of the newest watch of each path.
    pub(super) watched: BTreeMap<String, u64>,
    /// The requests: method, path, and whether they are watches.
    pub(super) requests: BTreeSet<(String, String, bool)>,
    /// The path whose watches break off in the middle of the last line.
    pub(super) broken: Option<String>,
    /// The only token that is accepted; none: all requests are.
    pub(super) token: Option<String>,
    /// The status of the answers to the next writes.
    pub(super) refusals: Vec<u16>,
    /// The objects that clients have created, with their paths.
    pub(super) created: Vec<(String, Value)>,
}

impl State {
    pub(super) fn put(&mut self, path: &str, mut object: Value) {
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

    pub(super) fn delete(&mut self, path: &str, name: &str) {
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
    pub(super) fn write(&mut self, request: &Request) -> Result<Value, u16> {
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

    pub(super) fn of(&self, path: &str) -> Vec<&Value> {
        let all = self.objects.iter();
        let of = all.filter(|((known, _), _)| known == path);
        of.map(|(_, object)| object).collect()
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

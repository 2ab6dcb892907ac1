//! Parsing of one file into objects, or problems with the line of each mistake.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::Problem;
use crate::source::object::{Key, Kind, Object};

mod document;

use document::{Document, Fault};

/// Maximum number of reported problems per file, so that a malformed file does not flood the log.
const PROBLEMS_MAX: usize = 20;

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Yaml,
    Json,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) objects: BTreeMap<Key, Object>,
    pub(super) problems: Vec<Problem>,
    /// Whether nothing was lost: only then is an object that is missing in it deleted.
    pub(super) is_whole: bool,
}

/// Parses all documents of a file; `file` is its name in problems.
pub(super) fn parse(file: &str, format: Format, text: &str) -> Parsed {
    let mut reader = Reader {
        file,
        objects: BTreeMap::new(),
        problems: Vec::new(),
        faults: 0,
    };
    match format {
        Format::Yaml => document::yaml(text, |document| reader.document(document)),
        Format::Json => document::json(text, |document| reader.document(document)),
    }
    reader.finish()
}

struct Reader<'a> {
    file: &'a str,
    objects: BTreeMap<Key, Object>,
    problems: Vec<Problem>,
    faults: usize,
}

impl Reader<'_> {
    fn finish(mut self) -> Parsed {
        if self.faults > PROBLEMS_MAX {
            self.problems.push(Problem::More {
                file: self.file.to_owned(),
                count: self.faults - PROBLEMS_MAX,
            });
        }
        Parsed {
            objects: self.objects,
            problems: self.problems,
            is_whole: self.faults == 0,
        }
    }

    fn document(&mut self, mut document: Document<'_>) {
        match document.take_value() {
            Ok(Value::Null) => {}
            Ok(mut value) => match list(&mut value) {
                Some(items) => self.items(&document, items),
                None => self.object(Place::of(&document, None), &value),
            },
            Err(fault) => self.fault(&document, fault),
        }
    }

    fn items(&mut self, document: &Document<'_>, items: Vec<Value>) {
        for (index, item) in items.into_iter().enumerate() {
            self.object(Place::of(document, Some(index)), &item);
        }
    }

    fn object(&mut self, place: Place<'_>, value: &Value) {
        match object(place, value) {
            Ok(Some((key, object))) => self.take(place, key, object),
            Ok(None) => tracing::debug!(
                file = self.file,
                document = place.document.number,
                api_version = %value["apiVersion"],
                kind = %value["kind"],
                "object skipped: its kind is not read"
            ),
            Err(fault) => self.fault(place.document, fault),
        }
    }

    fn take(&mut self, place: Place<'_>, key: Key, object: Object) {
        match self.objects.entry(key) {
            Entry::Vacant(free) => {
                free.insert(object);
            }
            Entry::Occupied(taken) => {
                let (number, line) = (place.document.number, place.line());
                self.problems.push(Problem::Duplicate {
                    object: taken.key().to_string(),
                    winner: self.file.to_owned(),
                    loser: format!("{}, document {number}, line {line}", self.file),
                });
            }
        }
    }

    fn fault(&mut self, document: &Document<'_>, fault: Fault) {
        self.faults += 1;
        if self.faults <= PROBLEMS_MAX {
            self.problems.push(Problem::Malformed {
                file: self.file.to_owned(),
                document: document.number,
                line: fault.line,
                what: fault.what,
            });
        }
    }
}

/// The place of an object: a document, or an item of the list in it.
#[derive(Clone, Copy)]
struct Place<'a> {
    document: &'a Document<'a>,
    item: Option<usize>,
}

impl<'a> Place<'a> {
    fn of(document: &'a Document<'a>, item: Option<usize>) -> Self {
        Self { document, item }
    }

    fn line(self) -> u64 {
        self.document.line_of(self.item)
    }

    fn fault(self, what: impl Into<String>) -> Fault {
        Fault {
            line: self.line(),
            what: what.into(),
        }
    }

    /// The mistake of a value that is not a `T`: with the exact line if the document is one object, and always with the field.
    fn misfit<T: DeserializeOwned>(self, error: &impl ToString) -> Fault {
        let alone = self.item.is_none();
        let line = alone.then(|| self.document.line_of_misfit::<T>());
        Fault {
            line: line.flatten().unwrap_or_else(|| self.line()),
            what: error.to_string(),
        }
    }
}

/// The items of a `List`, or of a typed list, whose items need not repeat their kind.
fn list(value: &mut Value) -> Option<Vec<Value>> {
    let kind = value["kind"].as_str()?.strip_suffix("List")?.to_owned();
    let api_version = value["apiVersion"].clone();
    let Value::Array(mut items) = value.get_mut("items")?.take() else {
        return Some(Vec::new());
    };
    let is_typed = !kind.is_empty();
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        if is_typed && !item.contains_key("kind") {
            item.insert("kind".to_owned(), kind.clone().into());
            item.insert("apiVersion".to_owned(), api_version.clone());
        }
    }
    Some(items)
}

/// The object that a value describes; none if its kind is not read.
fn object(place: Place<'_>, value: &Value) -> Result<Option<(Key, Object)>, Fault> {
    let text = |field: &str| match value.get(field).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(place.fault(format!(
            "{field} is missing: every manifest needs apiVersion, kind and metadata.name"
        ))),
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let Some(kind) = Kind::named(api_version, kind) else {
        return Ok(None);
    };
    let (key, object) = match kind {
        Kind::Node => {
            let mut node: Box<Node> = typed(place, value)?;
            (key(kind, &mut node.metadata), Object::Node(node))
        }
        Kind::Service => {
            let mut service: Box<Service> = typed(place, value)?;
            (key(kind, &mut service.metadata), Object::Service(service))
        }
        Kind::EndpointSlice => {
            let mut slice: Box<EndpointSlice> = typed(place, value)?;
            (key(kind, &mut slice.metadata), Object::EndpointSlice(slice))
        }
    };
    let nameless = || place.fault("metadata.name is missing: every object needs a name");
    Ok(Some((key.ok_or_else(nameless)?, object)))
}

fn typed<T: DeserializeOwned>(place: Place<'_>, value: &Value) -> Result<Box<T>, Fault> {
    if let Ok(object) = T::deserialize(value) {
        return Ok(Box::new(object));
    }
    // Parsed a second time for the field's path, which is too expensive to track for valid files.
    let object = serde_path_to_error::deserialize(value);
    object
        .map(Box::new)
        .map_err(|error| place.misfit::<T>(&error))
}

/// The object's key, after its default namespace is set; none if it has no name.
fn key(kind: Kind, metadata: &mut ObjectMeta) -> Option<Key> {
    let name = metadata.name.as_deref().filter(|name| !name.is_empty())?;
    let name = Arc::from(name);
    if kind == Kind::Node {
        metadata.namespace = None;
    } else if metadata.namespace.as_deref().is_none_or(str::is_empty) {
        metadata.namespace = Some("default".to_owned());
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default().into();
    Some(Key {
        kind,
        namespace,
        name,
    })
}

#[cfg(test)]
mod tests;

//! The document of a watch: one event a line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::fault::{Fault, Refusal, Status};
use crate::names::Key;

/// Maximum length of a line, in bytes: a hundred times what etcd stores by default.
const LINE_MAX: usize = 128 << 20;
/// How a server begins a line.
const TYPE_FIRST: &[u8] = b"{\"type\":\"";
/// The annotation of the bookmark after the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// The start of a line that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    start: Vec<u8>,
}

impl Lines {
    /// Reads a part of the document, and passes on each line that it completes, until `next` returns false.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut next: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            let goes_on = if self.start.is_empty() {
                next(line)
            } else {
                self.start.extend_from_slice(line);
                let goes_on = next(&self.start);
                self.start.clear();
                goes_on
            };
            if !goes_on {
                return Ok(());
            }
        }
        self.start.extend_from_slice(rest);
        if self.start.len() > LINE_MAX {
            return Err(Fault::malformed("a line is too long"));
        }
        Ok(())
    }
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Line<T> {
    /// ADDED or MODIFIED.
    Applied(Read<T>),
    /// DELETED.
    Deleted(Meta),
    /// BOOKMARK, and whether the initial events are complete.
    Bookmark(Meta, bool),
    /// ERROR.
    Refused(Refusal),
    /// An event of another type.
    Unknown,
}

/// An object; of one that cannot be parsed, the metadata and the mistake.
pub(crate) type Read<T> = Result<T, (Meta, serde_json::Error)>;

/// The metadata that a follower needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Of<T> {
    object: T,
}

#[derive(Deserialize)]
struct Partial {
    metadata: Meta,
}

impl Meta {
    /// The metadata of an object in a list.
    pub(crate) fn of_item(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<Partial>(text).map(|partial| partial.metadata)
    }

    /// The object's key.
    pub(crate) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
        }
    }

    /// The object's version, if it has one.
    pub(crate) fn version(self) -> Option<String> {
        self.resource_version.filter(|version| !version.is_empty())
    }

    fn ends_list(&self) -> bool {
        let annotations = self.annotations.as_ref();
        let mark = annotations.and_then(|annotations| annotations.get(INITIAL_END));
        mark.is_some_and(|mark| mark == "true")
    }
}

/// Parses a line.
pub(crate) fn line<T: DeserializeOwned>(text: &[u8]) -> Result<Line<T>, serde_json::Error> {
    Ok(match &*kind(text)? {
        "ADDED" | "MODIFIED" => Line::Applied(match object(text) {
            Ok(object) => Ok(object),
            Err(error) => Err((meta(text)?, error)),
        }),
        "DELETED" => Line::Deleted(meta(text)?),
        "BOOKMARK" => {
            let meta = meta(text)?;
            let ends_list = meta.ends_list();
            Line::Bookmark(meta, ends_list)
        }
        "ERROR" => Line::Refused(Refusal::of_event(object::<Status>(text)?)),
        _ => Line::Unknown,
    })
}

/// The type of an event. Servers write it first: then the rest of the line, which may be long, is not read for it.
fn kind(text: &[u8]) -> Result<Cow<'_, str>, serde_json::Error> {
    let rest = text.strip_prefix(TYPE_FIRST).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'"');
    let first = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
    match first {
        Some(kind) if !kind.contains('\\') => Ok(Cow::Borrowed(kind)),
        _ => serde_json::from_slice::<Kind<'_>>(text).map(|line| line.kind),
    }
}

fn object<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Of<T>>(text).map(|of| of.object)
}

fn meta(text: &[u8]) -> Result<Meta, serde_json::Error> {
    object::<Partial>(text).map(|partial| partial.metadata)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(
            lines in vec("[^\n]{0,9}", 0..6),
            rest in "[^\n]{0,9}",
            lengths in vec(1..9_usize, 1..5),
        ) {
            let ended = lines.iter().flat_map(|line| [line.as_str(), "\n"]);
            let text: String = ended.chain([rest.as_str()]).collect();
            let (mut reader, mut read) = (Lines::default(), Vec::new());
            let (mut left, mut lengths) = (text.as_bytes(), lengths.iter().cycle());
            while !left.is_empty() {
                let (part, more) = left.split_at((*lengths.next().unwrap()).min(left.len()));
                reader.feed(part, |line| {
                    read.push(String::from_utf8(line.to_vec()).unwrap());
                    true
                }).unwrap();
                left = more;
            }
            prop_assert_eq!(read, lines);
        }
    }

    #[test]
    fn an_object_that_cannot_be_parsed_still_has_a_name_and_a_version() {
        let text = br#"{"type":"ADDED","object":{"metadata":{"name":"web","namespace":"shop","resourceVersion":"7"},"spec":{"ports":7}}}"#;
        let Line::Applied(Err((meta, _))) = line::<Service>(text).unwrap() else {
            panic!("it was parsed");
        };
        assert_eq!(&*meta.key().name, "web");
        assert_eq!(meta.version().as_deref(), Some("7"));
    }

    #[test]
    fn the_type_is_found_wherever_it_is() {
        for line in [
            r#"{"type":"ADDED","object":{"type":"no"}}"#,
            r#"{"object":{"type":"no"},"type":"ADDED"}"#,
            r#"{ "type" : "ADDED" }"#,
            r#"{"type":"\u0041DDED"}"#,
        ] {
            assert_eq!(kind(line.as_bytes()).unwrap(), "ADDED", "{line}");
        }
        for wrong in [r#"{"type":"ADDED"#, r#"{"object":{}}"#, ""] {
            assert!(line::<Service>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_of_an_unknown_type_is_no_mistake() {
        let read = line::<Service>(br#"{"type":"NEW","object":7}"#);
        assert!(matches!(read, Ok(Line::Unknown)));
    }
}

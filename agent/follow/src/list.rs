//! The document of a list, split into its items as it arrives: an item is held only until it is complete.

use serde::Deserialize;

use crate::fault::Fault;

/// Maximum length of an item, in bytes: a hundred times what etcd stores by default.
const ITEM_MAX: usize = 128 << 20;
/// Maximum length of a list without its items, in bytes.
const ENVELOPE_MAX: usize = 1 << 20;

/// A list that is being read.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Open objects and arrays.
    depth: usize,
    place: Place,
    text: Text,
    item: Vec<u8>,
    /// The document without its items.
    envelope: Vec<u8>,
}

/// The part of the document that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    Envelope,
    /// Between items.
    Items,
    Item,
}

/// Whether a string is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

/// The metadata of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    pub(crate) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(crate) token: Option<String>,
}

#[derive(Deserialize)]
struct Envelope {
    metadata: ListMeta,
}

impl List {
    /// Reads a part of the document, and passes on each item that it completes.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut next: impl FnMut(&[u8])) -> Result<(), Fault> {
        // Where the part begins that is not kept yet.
        let mut from = 0;
        for (place, byte) in bytes.iter().enumerate() {
            if self.is_text(*byte) {
                continue;
            }
            match byte {
                b'{' | b'[' if self.opens(*byte, &bytes[from..=place]) => {
                    from = place + usize::from(self.place == Place::Items);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    match (self.place, self.depth) {
                        (Place::Item, 2) => {
                            self.item.extend_from_slice(&bytes[from..=place]);
                            next(&self.item);
                            self.item.clear();
                            self.place = Place::Items;
                        }
                        (Place::Items, 1) => {
                            self.place = Place::Envelope;
                            from = place;
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        self.keep(bytes.get(from..).unwrap_or_default())
    }

    /// Takes an opening bracket. Returns whether an item or the array of items begins with it; `read`: what was not kept
    /// before, up to the bracket.
    fn opens(&mut self, bracket: u8, read: &[u8]) -> bool {
        self.depth += 1;
        match (self.place, self.depth, bracket) {
            (Place::Envelope, 2, b'[') => {
                self.envelope.extend_from_slice(read);
                self.place = Place::Items;
                true
            }
            (Place::Items, 3, b'{') => {
                self.place = Place::Item;
                true
            }
            _ => false,
        }
    }

    /// Whether the byte belongs to a string.
    fn is_text(&mut self, byte: u8) -> bool {
        let before = self.text;
        self.text = match (before, byte) {
            (Text::Outside, b'"') | (Text::Escaped, _) => Text::Inside,
            (Text::Inside, b'\\') => Text::Escaped,
            (Text::Inside, b'"') => Text::Outside,
            (same, _) => same,
        };
        before != Text::Outside
    }

    /// Keeps what was read of an item, or of the envelope.
    fn keep(&mut self, rest: &[u8]) -> Result<(), Fault> {
        match self.place {
            Place::Item => self.item.extend_from_slice(rest),
            Place::Envelope => self.envelope.extend_from_slice(rest),
            Place::Items => {}
        }
        if self.item.len() > ITEM_MAX || self.envelope.len() > ENVELOPE_MAX {
            return Err(Fault::malformed("a list is too long"));
        }
        Ok(())
    }

    /// The list's metadata; an error, unless the document is complete.
    pub(crate) fn end(self) -> Result<ListMeta, serde_json::Error> {
        let envelope: Envelope = serde_json::from_slice(&self.envelope)?;
        Ok(envelope.metadata)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Reads the document in parts of these lengths, in turn.
    fn read(text: &str, lengths: &[usize]) -> (Vec<Value>, Option<ListMeta>) {
        let (mut list, mut items) = (List::default(), Vec::new());
        let mut rest = text.as_bytes();
        for length in lengths.iter().cycle() {
            let (part, more) = rest.split_at((*length).min(rest.len()));
            let taken = list.feed(part, |item| {
                items.push(serde_json::from_slice(item).unwrap());
            });
            taken.unwrap();
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        (items, list.end().ok())
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\],:é\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec(("[a-z\"\\\\\\[{]{0,4}", inner), 0..4).prop_map(object),
            ]
        })
    }

    fn object(fields: Vec<(String, Value)>) -> Value {
        Value::Object(fields.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_items_are_those_of_the_document_however_it_is_cut(
            items in vec(vec(("[a-z]{1,3}", value()), 0..4).prop_map(object), 0..5),
            lengths in vec(1..40_usize, 1..5),
            pretty in any::<bool>(),
        ) {
            let list = json!({
                "apiVersion": "v1", "kind": "ServiceList", "items": items,
                "metadata": {"resourceVersion": "7", "continue": "]}\"{["},
            });
            let text = if pretty { format!("{list:#}") } else { list.to_string() };
            let (read_items, meta) = read(&text, &lengths);
            prop_assert_eq!(read_items, items);
            let meta = meta.unwrap();
            prop_assert_eq!(meta.resource_version.as_deref(), Some("7"));
            prop_assert_eq!(meta.token.as_deref(), Some("]}\"{["));
        }

        #[test]
        fn a_list_that_breaks_off_is_not_complete(cut in 0..70_usize) {
            let text = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":[2]}],"x":[1]}"#;
            prop_assert!(cut < text.len());
            let (_, meta) = read(&text[..cut], &[5]);
            prop_assert!(meta.is_none());
        }
    }

    #[test]
    fn a_list_without_items_is_complete() {
        for items in ["null", "[]", "[ ]"] {
            let text = format!("{{\"items\":{items},\"metadata\":{{\"resourceVersion\":\"9\"}}}}");
            let (items, meta) = read(&text, &[1]);
            assert!(items.is_empty());
            assert_eq!(meta.unwrap().resource_version.as_deref(), Some("9"));
        }
    }
}

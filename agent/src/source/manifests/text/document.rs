//! The documents in a text. Each is parsed alone, so that a mistake in one does not hide the others.

use std::cell::OnceCell;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter, Options, Spanned};

/// A mistake in a document.
#[derive(Debug)]
pub(super) struct Fault {
    /// The line within the file, from 1.
    pub(super) line: u64,
    pub(super) what: String,
}

/// A document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    /// From 1.
    pub(super) number: usize,
    /// The line within the file on which `text` starts, from 1.
    first_line: u64,
    text: &'a str,
    value: Option<Result<Value, Fault>>,
    /// The lines within `text` on which list items start; computed only when a mistake is reported.
    item_lines: OnceCell<Vec<u64>>,
}

impl<'a> Document<'a> {
    fn new(number: usize, first_line: u64, text: &'a str) -> Self {
        Self {
            number,
            first_line,
            text,
            value: None,
            item_lines: OnceCell::new(),
        }
    }

    /// The parsed document; can be called once.
    pub(super) fn take_value(&mut self) -> Result<Value, Fault> {
        match self.value.take() {
            Some(value) => value,
            None => read(self.text).map_err(|error| self.yaml_fault(&error)),
        }
    }

    /// The line on which the document, or an item of its list, starts.
    pub(super) fn line_of(&self, item: Option<usize>) -> u64 {
        let lines = || self.item_lines.get_or_init(|| item_lines(self.text));
        let line = item.and_then(|item| lines().get(item).copied());
        self.absolute(line.unwrap_or_else(|| content_line(self.text)))
    }

    /// The line on which the document does not match a type.
    pub(super) fn line_of_misfit<T: DeserializeOwned>(&self) -> Option<u64> {
        let error = read::<T>(self.text).err()?;
        Some(self.absolute(error.location()?.line()))
    }

    fn yaml_fault(&self, error: &serde_saphyr::Error) -> Fault {
        Fault {
            line: self.absolute(error.location().map_or(1, |at| at.line())),
            what: DefaultMessageFormatter.format_message(error).into_owned(),
        }
    }

    fn absolute(&self, line: u64) -> u64 {
        self.first_line + line.saturating_sub(1)
    }
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Spanned<IgnoredAny>>,
}

fn item_lines(text: &str) -> Vec<u64> {
    let items = read::<Items>(text).map(|list| list.items);
    let items = items.unwrap_or_default();
    items.iter().map(|item| item.referenced.line()).collect()
}

/// The first line, from 1, that is not empty, a comment or a marker.
fn content_line(text: &str) -> u64 {
    let before = text.lines().take_while(|line| is_void(line)).count();
    before as u64 + 1
}

/// Parses YAML, of which JSON is a subset.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// A `List` of a whole cluster is one document, so its size is limited only by the file's size. The default limits for aliases
/// stay, so a small file cannot expand without bound.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
        with_snippet: false,
    }
}

/// Calls `each` for the documents of a YAML text, except empty ones. A line that starts with `---` or `...` ends a document
/// anywhere: YAML allows it inside no document.
pub(super) fn yaml<'a>(text: &'a str, mut each: impl FnMut(Document<'a>)) {
    let (mut start, mut first_line, mut number) = (0, 1, 0);
    let mut emit = |text: &'a str, first_line: u64| {
        if text.lines().any(|line| !is_void(line)) {
            number += 1;
            each(Document::new(number, first_line, text));
        }
    };
    let mut offset = 0;
    for (line, line_number) in text.split_inclusive('\n').zip(1_u64..) {
        let next = offset + line.len();
        let (begins, ends) = (is_marker(line, "---"), is_marker(line, "..."));
        if begins || ends {
            emit(&text[start..offset], first_line);
            start = if begins { offset } else { next };
            first_line = if begins { line_number } else { line_number + 1 };
        }
        offset = next;
    }
    emit(&text[start..], first_line);
}

fn is_marker(line: &str, marker: &str) -> bool {
    let rest = line.strip_prefix(marker);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether a line has no content: empty, a comment, a directive, or only a marker.
fn is_void(line: &str) -> bool {
    let is_marker = is_marker(line, "---");
    let rest = if is_marker { &line[3..] } else { line };
    let rest = rest.trim_start_matches('\u{feff}').trim_start();
    rest.is_empty() || rest.starts_with('#') || (line.starts_with('%') && !is_marker)
}

/// Calls `each` for the documents of a JSON text. After a document that cannot be parsed, the rest of the text is skipped.
pub(super) fn json<'a>(text: &'a str, mut each: impl FnMut(Document<'a>)) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut start, mut first_line) = (0, 1);
    for number in 1.. {
        let Some(value) = values.next() else { break };
        let end = values.byte_offset().max(start);
        let is_last = value.is_err();
        let mut document = Document::new(number, first_line, &text[start..end]);
        document.value = Some(value.map_err(|error| json_fault(&error)));
        each(document);
        if is_last {
            break;
        }
        first_line += lines_in(&text[start..end]);
        start = end;
    }
}

fn lines_in(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// The message without the position that serde_json appends.
fn json_fault(error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(what, _)| what);
    Fault {
        line: error.line() as u64,
        what: what.to_owned(),
    }
}

//! Lookup of fields by a dotted path, as in selectors and printer columns.

use serde_json::Value;

/// The value at `path` (`spec.nodeName`, with or without a leading dot).
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(value, |value, name| value.get(name))
}

/// The string at `path`; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

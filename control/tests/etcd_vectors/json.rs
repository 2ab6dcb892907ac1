//! The JSON encoding of bytes in the golden vectors: printable text, long runs as a count.

use std::fmt::Write;

use serde_json::Value;

/// Encodes bytes: printable ASCII as itself, other bytes and `%` as `%XX`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").unwrap();
        }
    }
    text
}

/// Decodes a text, or a run such as `{"rep": "v", "n": 700000}`.
pub(crate) fn unescape(value: &Value) -> Vec<u8> {
    if let Value::Object(run) = value {
        let count = usize::try_from(run["n"].as_u64().unwrap()).unwrap();
        return unescape(&run["rep"]).repeat(count);
    }
    let text = value.as_str().unwrap().as_bytes();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

/// A value for a test's output: long values are cut.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 1_500 {
        text
    } else {
        format!("{}...", text.chars().take(1_500).collect::<String>())
    }
}

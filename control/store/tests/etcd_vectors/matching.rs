//! Comparison of a response with the recorded one, with wildcards.

use serde_json::Value;

use crate::{json::unescape, messages::Vars};

pub(crate) fn matches(expected: &Value, got: &Value, vars: &Vars) -> bool {
    match (expected, got) {
        (Value::String(wanted), _) if is_wildcard(wanted) => wildcard(wanted, got, vars),
        (Value::Object(run), Value::String(_)) if run.contains_key("rep") => {
            unescape(expected) == unescape(got)
        }
        (Value::Object(wanted), Value::Object(found)) => {
            let unknown = found.keys().any(|name| !wanted.contains_key(name));
            !unknown
                && wanted
                    .iter()
                    .all(|(name, value)| match (value, found.get(name)) {
                        (Value::Object(range), number) if range.contains_key("from") => {
                            let number = number.and_then(Value::as_i64).unwrap_or(0);
                            range["from"].as_i64() <= Some(number)
                                && Some(number) <= range["to"].as_i64()
                        }
                        (value, Some(found)) => matches(value, found, vars),
                        (_, None) => false,
                    })
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| matches(wanted, found, vars))
        }
        _ => expected == got,
    }
}

fn is_wildcard(text: &str) -> bool {
    text.starts_with('$') || ["~pos", "~version", "~list"].contains(&text)
}

fn wildcard(wanted: &str, got: &Value, vars: &Vars) -> bool {
    match wanted {
        "~pos" => {
            got.as_i64().is_some_and(|number| number > 0) || got.as_u64().is_some_and(|n| n > 0)
        }
        "~version" => got.as_str().is_some_and(|text| !text.is_empty()),
        "~list" => got.as_array().is_some_and(|list| !list.is_empty()),
        name => vars.get(&name[1..]) == Some(got),
    }
}

//! Comparison of a response with the recorded one, with wildcards and unordered lists.

use serde_json::{Map, Value};

use crate::{json::unescape, messages::Vars};

/// Lists without an order: alarms, members, and the keys of a lease.
const UNORDERED: [&str; 3] = ["alarms", "members", "keys"];

/// Whether a value is the recorded one. A recorded `null` (a text of the gRPC library) matches all.
pub(crate) fn matches(expected: &Value, got: &Value, vars: &Vars) -> bool {
    match (expected, got) {
        (Value::Null, _) => true,
        (Value::String(wanted), _) if is_wildcard(wanted) => wildcard(wanted, got, vars),
        (Value::Object(run), Value::String(_)) if run.contains_key("rep") => {
            unescape(expected) == unescape(got)
        }
        (Value::Object(wanted), Value::Object(found)) => objects_match(wanted, found, vars),
        (Value::Array(wanted), Value::Array(found)) => {
            let mut pairs = wanted.iter().zip(found);
            wanted.len() == found.len() && pairs.all(|(wanted, found)| matches(wanted, found, vars))
        }
        _ => expected == got,
    }
}

fn objects_match(wanted: &Map<String, Value>, found: &Map<String, Value>, vars: &Vars) -> bool {
    let known = found.keys().all(|name| wanted.contains_key(name));
    known
        && wanted
            .iter()
            .all(|(name, value)| match (value, found.get(name)) {
                (Value::Object(range), number) if range.contains_key("from") => {
                    let number = number.and_then(Value::as_i64).unwrap_or(0);
                    range["from"].as_i64() <= Some(number) && Some(number) <= range["to"].as_i64()
                }
                (Value::Array(wanted), Some(Value::Array(found)))
                    if UNORDERED.contains(&name.as_str()) =>
                {
                    matches_unordered(wanted, found, vars)
                }
                (value, Some(found)) => matches(value, found, vars),
                (_, None) => false,
            })
}

/// Whether each element found is one of the wanted elements, and none is missing.
fn matches_unordered(wanted: &[Value], found: &[Value], vars: &Vars) -> bool {
    let mut wanted: Vec<&Value> = wanted.iter().collect();
    wanted.len() == found.len()
        && found.iter().all(|found| {
            let index = wanted
                .iter()
                .position(|wanted| matches(wanted, found, vars));
            index.map(|index| wanted.swap_remove(index)).is_some()
        })
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

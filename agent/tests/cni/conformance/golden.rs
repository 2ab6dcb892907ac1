//! Compares an answer with its golden file. `"$name"` stands for any value, the same wherever the name returns; a key
//! that ends in `?` may be absent; all else is literal, and nothing else may be there.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::conformance::check::{Outcome, holds};

/// What the names stand for.
#[derive(Default, Debug)]
pub(crate) struct Bindings(BTreeMap<String, Value>);

impl Bindings {
    /// The text that a name stands for; empty if the golden file has no such name.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn bind(&mut self, name: &str, value: &Value, at: &str) -> Outcome {
        let bound = self
            .0
            .entry(name.to_owned())
            .or_insert_with(|| value.clone());
        holds(bound == value, || {
            format!("{at} is {value}, but ${name} is {bound}")
        })
    }
}

/// Compares with `golden/FILE.json`.
pub(crate) fn compare(file: &str, answer: &Value) -> Outcome<Bindings> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cni/conformance/golden");
    let path = folder.join(format!("{file}.json"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let golden = serde_json::from_str(&text).unwrap();
    let mut bindings = Bindings::default();
    walk(&golden, answer, "$", &mut bindings)?;
    Ok(bindings)
}

fn walk(golden: &Value, answer: &Value, at: &str, bindings: &mut Bindings) -> Outcome {
    match (golden, answer) {
        (Value::String(name), value) if name.starts_with('$') => {
            bindings.bind(&name[1..], value, at)
        }
        (Value::Object(golden), Value::Object(answer)) => {
            let known = |key: &String| {
                golden.contains_key(key.as_str()) || golden.contains_key(&format!("{key}?"))
            };
            for key in answer.keys() {
                holds(known(key), || format!("{at} has an unexpected `{key}`"))?;
            }
            for (key, wanted) in golden {
                let name = key.strip_suffix('?');
                let Some(value) = answer.get(name.unwrap_or(key)) else {
                    holds(name.is_some(), || format!("{at} has no `{key}`"))?;
                    continue;
                };
                walk(wanted, value, &format!("{at}.{key}"), bindings)?;
            }
            Ok(())
        }
        (Value::Array(golden), Value::Array(answer)) => {
            holds(golden.len() == answer.len(), || {
                format!("{at} has {} items, not {}", answer.len(), golden.len())
            })?;
            let pairs = golden.iter().zip(answer).enumerate();
            for (index, (wanted, value)) in pairs {
                walk(wanted, value, &format!("{at}[{index}]"), bindings)?;
            }
            Ok(())
        }
        (golden, answer) => holds(golden == answer, || {
            format!("{at} is {answer}, not {golden}")
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differs(golden: &Value, answer: &Value) -> String {
        let mut bindings = Bindings::default();
        walk(golden, answer, "$", &mut bindings)
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn a_name_stands_for_one_value() {
        let golden = json!({"a": "$x", "b": ["$x", 1]});
        assert_eq!(differs(&golden, &json!({"a": "z", "b": ["z", 1]})), "");
        assert_eq!(
            differs(&golden, &json!({"a": "z", "b": ["y", 1]})),
            "$.b[0] is \"y\", but $x is \"z\""
        );
    }

    #[test]
    fn what_is_not_in_the_golden_file_is_a_finding() {
        let golden = json!({"a": 1, "b?": []});
        assert_eq!(differs(&golden, &json!({"a": 1})), "");
        assert_eq!(differs(&golden, &json!({"a": 1, "b": []})), "");
        assert_eq!(differs(&golden, &json!({"b": []})), "$ has no `a`");
        assert_eq!(differs(&golden, &json!({"a": 2})), "$.a is 2, not 1");
        assert_eq!(
            differs(&golden, &json!({"a": 1, "b": [3]})),
            "$.b? has 1 items, not 0"
        );
        assert_eq!(
            differs(&golden, &json!({"a": 1, "c": 3})),
            "$ has an unexpected `c`"
        );
    }
}

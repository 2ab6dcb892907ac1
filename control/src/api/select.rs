//! Label and field selectors: which objects of a list a client wants to see.

use serde_json::Value;

use super::{Failure, fields};

/// Which objects a client wants to see.
#[derive(Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Condition>,
    fields: Vec<Condition>,
}

/// One requirement on one label or field.
#[derive(Debug, PartialEq)]
enum Condition {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Reads both selectors; empty ones select everything.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Failure> {
        let fields = parse(fields)?;
        if fields
            .iter()
            .any(|one| matches!(one, Condition::Exists(_) | Condition::Absent(_)))
        {
            return Err(Failure::bad_request(
                "a field selector compares: write field=value or field!=value",
            ));
        }
        Ok(Self {
            labels: parse(labels)?,
            fields,
        })
    }

    /// Whether `object` is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let label = |name: &str| object.get("metadata")?.get("labels")?.get(name)?.as_str();
        // An absent field compares as empty, as in Kubernetes.
        let field = |path: &str| Some(fields::text(object, path));
        self.labels.iter().all(|one| one.holds(&label))
            && self.fields.iter().all(|one| one.holds(&field))
    }
}

impl Condition {
    fn holds<'a>(&self, value: &impl Fn(&str) -> Option<&'a str>) -> bool {
        let among = |name: &str, set: &[String]| {
            value(name).is_some_and(|value| set.iter().any(|one| one == value))
        };
        match self {
            Self::In(name, set) => among(name, set),
            Self::NotIn(name, set) => !among(name, set),
            Self::Exists(name) => value(name).is_some(),
            Self::Absent(name) => value(name).is_none(),
        }
    }
}

/// Conditions are separated by commas, except inside parentheses.
fn parse(text: &str) -> Result<Vec<Condition>, Failure> {
    let mut depth = 0_i32;
    let pieces = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    pieces
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
        .map(condition)
        .collect()
}

fn condition(text: &str) -> Result<Condition, Failure> {
    let one = |name: &str, value: &str| (name.trim().to_owned(), vec![value.trim().to_owned()]);
    let found = if let Some((name, value)) = text.split_once("!=") {
        let (name, set) = one(name, value);
        Condition::NotIn(name, set)
    } else if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        let (name, set) = one(name, value);
        Condition::In(name, set)
    } else if let Some((name, set)) = text.split_once(" notin ") {
        Condition::NotIn(name.trim().to_owned(), list(set)?)
    } else if let Some((name, set)) = text.split_once(" in ") {
        Condition::In(name.trim().to_owned(), list(set)?)
    } else if let Some(name) = text.strip_prefix('!') {
        Condition::Absent(name.trim().to_owned())
    } else {
        Condition::Exists(text.to_owned())
    };
    let (Condition::In(name, _)
    | Condition::NotIn(name, _)
    | Condition::Exists(name)
    | Condition::Absent(name)) = &found;
    let foreign = |c: char| c.is_whitespace() || "(),!=<>".contains(c);
    if name.is_empty() || name.contains(foreign) {
        return Err(Failure::bad_request(format!(
            "unable to parse selector requirement {text:?}"
        )));
    }
    Ok(found)
}

fn list(text: &str) -> Result<Vec<String>, Failure> {
    let inside = text
        .trim()
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.ok_or_else(|| {
        Failure::bad_request(format!(
            "a set of values stands in parentheses, not {text:?}"
        ))
    })?;
    Ok(inside
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &str, fields: &str, want: bool) {
        let object = json!({"metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}}, "spec": {"nodeName": "n1"}});
        assert_eq!(
            Selector::parse(labels, fields).unwrap().matches(&object),
            want,
            "{labels} {fields}"
        );
    }

    #[test]
    fn label_selectors_select_as_kubernetes_does() {
        for (labels, want) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("zone!=a", true),
            ("app in (api, web),tier", true),
            ("app notin (web)", false),
            ("!zone", true),
            ("!app", false),
            ("zone", false),
        ] {
            check(labels, "", want);
        }
    }

    #[test]
    fn field_selectors_compare_any_text_field() {
        for (fields, want) in [
            ("metadata.name=web", true),
            ("spec.nodeName=n2", false),
            ("spec.nodeName!=", true),
            ("status.phase=", true),
        ] {
            check("", fields, want);
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for (labels, fields) in [
            ("=a", ""),
            ("a in b", ""),
            ("a b", ""),
            ("((", ""),
            ("a>1", ""),
            ("", "spec.nodeName"),
        ] {
            assert!(
                Selector::parse(labels, fields).is_err(),
                "{labels} {fields}"
            );
        }
    }
}

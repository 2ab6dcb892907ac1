//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::{Failure, fields};

/// The field that names one object.
const NAME_FIELD: &str = "metadata.name";

/// A label selector and a field selector.
#[derive(Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

/// A requirement on one label or field.
#[derive(Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Parses both selectors; an empty one selects all objects.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Failure> {
        let fields = parse(fields)?;
        if fields
            .iter()
            .any(|one| matches!(one, Requirement::Exists(_) | Requirement::Absent(_)))
        {
            return Err(Failure::bad_request(
                "a field selector must compare: write field=value or field!=value",
            ));
        }
        Ok(Self {
            labels: parse(labels)?,
            fields,
        })
    }

    /// The fields that must have one value, with it.
    pub(super) fn exact_fields(&self) -> Vec<(String, String)> {
        let exact = self.fields.iter().filter_map(|one| match one {
            Requirement::In(name, values) => {
                let [value] = values.as_slice() else {
                    return None;
                };
                Some((name.clone(), value.clone()))
            }
            _ => None,
        });
        exact.collect()
    }

    /// The name that an object must have.
    pub(super) fn name(&self) -> Option<String> {
        let mut fields = self.exact_fields().into_iter();
        fields.find_map(|(field, value)| (field == NAME_FIELD).then_some(value))
    }

    /// Whether `object` is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let label = |name: &str| object.get("metadata")?.get("labels")?.get(name)?.as_str();
        // As in Kubernetes, a missing field is compared as an empty string.
        let field = |path: &str| Some(fields::text(object, path));
        self.labels.iter().all(|one| one.holds(&label))
            && self.fields.iter().all(|one| one.holds(&field))
    }
}

impl Requirement {
    fn holds<'a>(&self, value: &impl Fn(&str) -> Option<&'a str>) -> bool {
        let is_in = |name: &str, set: &[String]| {
            value(name).is_some_and(|value| set.iter().any(|one| one == value))
        };
        match self {
            Self::In(name, set) => is_in(name, set),
            Self::NotIn(name, set) => !is_in(name, set),
            Self::Exists(name) => value(name).is_some(),
            Self::Absent(name) => value(name).is_none(),
        }
    }
}

/// Parses requirements, which are separated by commas outside parentheses.
fn parse(text: &str) -> Result<Vec<Requirement>, Failure> {
    let mut depth = 0_i32;
    let pieces = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    pieces
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
        .map(requirement)
        .collect()
}

fn requirement(text: &str) -> Result<Requirement, Failure> {
    let one = |name: &str, value: &str| (name.trim().to_owned(), vec![value.trim().to_owned()]);
    let found = if let Some((name, value)) = text.split_once("!=") {
        let (name, set) = one(name, value);
        Requirement::NotIn(name, set)
    } else if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        let (name, set) = one(name, value);
        Requirement::In(name, set)
    } else if let Some((name, set)) = text.split_once(" notin ") {
        Requirement::NotIn(name.trim().to_owned(), list(set)?)
    } else if let Some((name, set)) = text.split_once(" in ") {
        Requirement::In(name.trim().to_owned(), list(set)?)
    } else if let Some(name) = text.strip_prefix('!') {
        Requirement::Absent(name.trim().to_owned())
    } else {
        Requirement::Exists(text.to_owned())
    };
    let (Requirement::In(name, _)
    | Requirement::NotIn(name, _)
    | Requirement::Exists(name)
    | Requirement::Absent(name)) = &found;
    let invalid = |c: char| c.is_whitespace() || "(),!=<>".contains(c);
    if name.is_empty() || name.contains(invalid) {
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
            "write a set of values in parentheses, not {text:?}"
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
    fn label_selectors_select_as_in_kubernetes() {
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
    fn field_selectors_compare_any_string_field() {
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
    fn a_malformed_selector_is_refused() {
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

//! The ways in which a client may change part of an object, as pure functions over JSON.

use http::HeaderMap;
use serde_json::{Map, Value};

use super::{Failure, accept};

/// Where the manifest that was applied last is kept: kubectl's own annotation, so that `kubectl apply` and
/// `dormouse apply` understand each other.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The kinds of patch, by media type.
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A change of part of an object.
#[derive(Debug)]
pub(super) enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// As merge, but lists of named things merge by name.
    Strategic(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
    /// The manifest is what its owner wants; what it no longer says goes.
    Apply(Value),
}

impl Patch {
    /// Reads a request's body by its media type.
    pub(super) fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, Failure> {
        let media = accept::content_type(headers);
        match media {
            MERGE => Ok(Self::Merge(json(body)?)),
            STRATEGIC => Ok(Self::Strategic(json(body)?)),
            JSON => Ok(Self::Json(json(body)?)),
            APPLY => Ok(Self::Apply(yaml(body)?)),
            _ => Err(Failure::unsupported_media(
                media,
                &[MERGE, STRATEGIC, JSON, APPLY].join(", "),
            )),
        }
    }

    /// The object after the patch.
    pub(super) fn apply(&self, current: &Value) -> Result<Value, Failure> {
        let mut patched = current.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => merge_named(&mut patched, patch),
            Self::Json(patch) => json_patch::patch(&mut patched, patch).map_err(|error| {
                Failure::bad_request(format!("cannot apply the JSON patch: {error}"))
            })?,
            Self::Apply(manifest) => {
                let before = last_applied(current).unwrap_or(Value::Null);
                json_patch::merge(&mut patched, &with_removals(&before, manifest));
                remember(&mut patched, manifest);
            }
        }
        Ok(patched)
    }

    /// The object that this patch creates where there is none; `None` when it cannot.
    pub(super) fn creates(&self) -> Option<Value> {
        let Self::Apply(manifest) = self else {
            return None;
        };
        let mut created = manifest.clone();
        remember(&mut created, manifest);
        Some(created)
    }
}

/// Reads JSON.
pub(super) fn json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))
}

/// Reads YAML, of which JSON is a part.
pub(super) fn yaml(body: &[u8]) -> Result<Value, Failure> {
    serde_saphyr::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is no YAML: {error}")))
}

fn last_applied(object: &Value) -> Option<Value> {
    let text = object
        .get("metadata")?
        .get("annotations")?
        .get(LAST_APPLIED)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// Notes `manifest` as applied last. An object whose metadata is no map is refused later, by its type.
fn remember(object: &mut Value, manifest: &Value) {
    let text = Value::String(manifest.to_string());
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return };
    let annotations = metadata
        .entry("annotations")
        .or_insert_with(|| Value::Object(Map::new()));
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(LAST_APPLIED.to_owned(), text);
    }
}

/// `after` as a merge patch that also removes what only `before` says.
fn with_removals(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let kept = new.iter().map(|(name, value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        (name.clone(), with_removals(before, value))
    });
    let gone = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| (name.clone(), Value::Null));
    kept.chain(gone).collect()
}

/// Merges as RFC 7396 does, but lists of things with names by those names. Directives (`$patch` …) are left out: the
/// one that `kubectl apply` sends, the order of a list, changes nothing here.
fn merge_named(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge_named(target.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) if named(target) && named(patch) => {
            for value in patch {
                match target.iter_mut().find(|one| one["name"] == value["name"]) {
                    Some(found) => merge_named(found, value),
                    None => target.push(value.clone()),
                }
            }
        }
        (target, Value::Object(patch)) => {
            *target = Value::Object(Map::new());
            merge_named(target, &Value::Object(patch.clone()));
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn named(list: &[Value]) -> bool {
    list.iter()
        .all(|one| one.get("name").is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn applying_removes_what_the_manifest_no_longer_says_and_keeps_what_others_wrote() {
        let first = json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"port": 80, "min": 1}});
        let mut object = Patch::Apply(first).creates().unwrap();
        object["spec"]["vip"] = json!("fd00:10::10");
        let second = json!({"metadata": {"name": "a", "labels": {"x": "3"}}, "spec": {"port": 81}});
        let object = Patch::Apply(second).apply(&object).unwrap();
        assert_eq!(object["spec"], json!({"port": 81, "vip": "fd00:10::10"}));
        assert_eq!(object["metadata"]["labels"], json!({"x": "3"}));
    }

    #[test]
    fn applying_the_same_manifest_again_changes_nothing() {
        let manifest = json!({"metadata": {"name": "a"}, "spec": {"command": ["x"]}});
        let patch = Patch::Apply(manifest);
        let object = patch.creates().unwrap();
        assert_eq!(patch.apply(&object).unwrap(), object);
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_name() {
        let object =
            json!({"spec": {"containers": [{"name": "a", "command": ["x"]}], "list": [1]}});
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "i"}, {"name": "b"}], "list": [2]}});
        let patched = Patch::Strategic(patch).apply(&object).unwrap();
        let want = json!({"spec": {"containers": [{"name": "a", "command": ["x"], "image": "i"}, {"name": "b"}], "list": [2]}});
        assert_eq!(patched, want);
    }

    #[test]
    fn a_patch_of_an_unknown_kind_or_form_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static(MERGE),
        );
        assert!(Patch::parse(&headers, b"{").is_err());
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/plain"),
        );
        assert!(Patch::parse(&headers, b"{}").is_err());
    }
}

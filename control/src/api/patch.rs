//! Patches of objects, as pure functions over JSON.

mod operations;
mod strategic;

use http::HeaderMap;
use serde_json::{Map, Value};

use super::{Failure, fields, negotiate};

/// The annotation of the last applied manifest. It is kubectl's, so that `kubectl apply` and `dormouse apply` can be
/// mixed.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The media types of patches.
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A patch.
#[derive(Debug)]
pub(super) enum Patch {
    /// JSON merge patch, RFC 7396.
    Merge(Value),
    /// Strategic merge patch: some lists are merged by a key of their items.
    Strategic(Value),
    /// JSON patch, RFC 6902.
    Json(json_patch::Patch),
    /// Apply: sets the fields of the manifest, removes those of the last applied manifest that it lacks.
    Apply(Value),
}

impl Patch {
    /// Parses a request's body by its media type.
    pub(super) fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, Failure> {
        let media = negotiate::content_type(headers);
        match media {
            MERGE => Ok(Self::Merge(json(body)?)),
            STRATEGIC => Ok(Self::Strategic(json(body)?)),
            JSON => {
                let patch: json_patch::Patch = json(body)?;
                operations::check_count(&patch)?;
                Ok(Self::Json(patch))
            }
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
            Self::Strategic(patch) => {
                strategic::merge(fields::text(current, "kind"), &mut patched, patch)?;
            }
            Self::Json(patch) => operations::apply(&mut patched, patch)?,
            Self::Apply(manifest) => {
                let before = last_applied(current).unwrap_or(Value::Null);
                json_patch::merge(&mut patched, &with_removals(&before, manifest));
                record_last_applied(&mut patched, manifest);
            }
        }
        Ok(patched)
    }

    /// The object that an apply patch creates if there is none; `None` for other patches.
    pub(super) fn creates(&self) -> Option<Value> {
        let Self::Apply(manifest) = self else {
            return None;
        };
        let mut created = manifest.clone();
        record_last_applied(&mut created, manifest);
        Some(created)
    }
}

/// Parses JSON.
pub(super) fn json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))
}

/// Parses YAML, of which JSON is a subset.
pub(super) fn yaml(body: &[u8]) -> Result<Value, Failure> {
    serde_saphyr::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is not YAML: {error}")))
}

fn last_applied(object: &Value) -> Option<Value> {
    let text = object
        .get("metadata")?
        .get("annotations")?
        .get(LAST_APPLIED)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// Sets the annotation of the last applied manifest. An object whose metadata is not a map is refused by its decoding.
fn record_last_applied(object: &mut Value, manifest: &Value) {
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

/// `after` as a merge patch that also removes the fields that only `before` has.
fn with_removals(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let set = new.iter().map(|(name, value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        (name.clone(), with_removals(before, value))
    });
    let removed = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| (name.clone(), Value::Null));
    set.chain(removed).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_apply_removes_fields_that_the_manifest_no_longer_has_and_no_others() {
        let first = json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"port": 80, "min": 1}});
        let mut object = Patch::Apply(first).creates().unwrap();
        object["spec"]["vip"] = json!("fd00:10::10");
        let second = json!({"metadata": {"name": "a", "labels": {"x": "3"}}, "spec": {"port": 81}});
        let object = Patch::Apply(second).apply(&object).unwrap();
        assert_eq!(object["spec"], json!({"port": 81, "vip": "fd00:10::10"}));
        assert_eq!(object["metadata"]["labels"], json!({"x": "3"}));
    }

    #[test]
    fn an_apply_of_the_same_manifest_changes_nothing() {
        let manifest = json!({"metadata": {"name": "a"}, "spec": {"command": ["x"]}});
        let patch = Patch::Apply(manifest);
        let object = patch.creates().unwrap();
        assert_eq!(patch.apply(&object).unwrap(), object);
    }

    #[test]
    fn yaml_that_repeats_a_large_text_by_aliases_is_refused() {
        let text = "x".repeat(100_000);
        let anchors: Vec<_> = (0..100).map(|n| format!("- &a{n} {n}\n")).collect();
        let anchors = anchors.concat();
        let body = format!("- &text {text}\n{anchors}{}", "- *text\n".repeat(1_000));
        assert!(body.len() < 200_000 && yaml(body.as_bytes()).is_err());
    }

    #[test]
    fn a_patch_with_an_unknown_media_type_or_a_malformed_body_is_refused() {
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

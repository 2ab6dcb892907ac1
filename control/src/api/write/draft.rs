//! Drafts: the JSON of an object that a client sent. A draft is named, decoded strictly, defaulted and validated.

use std::io;

use dormouse_cluster::{FieldError, Key, decode_strict, random_uid};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Map, Value, json};

use crate::api::{Failure, Kind, fields, kind::Rules};

/// Characters of a generated suffix; as in Kubernetes without vowels, so that no words result.
const SUFFIX_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters that are added to `generateName`.
const SUFFIX_LEN: usize = 5;
/// Metadata fields that the server sets.
const SERVER_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The subresource that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subresource {
    /// The object without its status.
    Main,
    /// Only the status.
    Status,
}

/// An object in the store.
pub(super) struct Stored<K> {
    /// The decoded object.
    pub(super) object: K,
    /// The object as JSON.
    pub(super) json: Value,
}

/// Checks that a draft is of the path's kind, and sets the name in the draft and in the key, from either of them or
/// generated.
pub(super) fn set_name<K: Kind>(draft: &mut Value, key: &mut Key) -> Result<(), Failure> {
    check_kind::<K>(draft)?;
    let prefix = fields::text(draft, "metadata.generateName").to_owned();
    let meta = metadata(draft)?;
    let named = meta.get("name").and_then(Value::as_str).unwrap_or_default();
    if !named.is_empty() && !key.name.is_empty() && named != key.name {
        let message = format!(
            "the name of the object ({named}) does not match the name in the URL ({})",
            key.name
        );
        return Err(Failure::bad_request(message));
    }
    if key.name.is_empty() {
        named.clone_into(&mut key.name);
    }
    if key.name.is_empty() && !prefix.is_empty() {
        key.name = format!("{prefix}{}", suffix()?);
    }
    if key.name.is_empty() {
        let missing =
            FieldError::required("metadata.name", "is required: set name or generateName");
        return Err(Failure::invalid::<K>("", &[missing]));
    }
    meta.insert("name".to_owned(), json!(key.name));
    Ok(())
}

/// The object to store for a create.
pub(in crate::api) fn created<K: Kind>(
    mut draft: Value,
    key: &Key,
    rules: &Rules<'_>,
) -> Result<K, Failure> {
    set_namespace::<K>(&mut draft, key)?;
    let meta = metadata(&mut draft)?;
    for name in SERVER_FIELDS {
        meta.remove(name);
    }
    if let Some(object) = draft.as_object_mut() {
        object.remove("status");
    }
    let mut object = decode::<K>(&draft, &key.name)?;
    object.set_defaults(None, rules);
    let meta = object.meta_mut();
    meta.uid = Some(uid()?);
    meta.creation_timestamp = Some(Time(now()));
    meta.generation = Some(1);
    validated(object, None, rules)
}

/// The object to store for an update.
pub(super) fn updated<K: Kind>(
    mut draft: Value,
    stored: &Stored<K>,
    subresource: Subresource,
    rules: &Rules<'_>,
) -> Result<K, Failure> {
    let (old, current) = (&stored.object, &stored.json);
    let key = old.key();
    check_kind::<K>(&draft)?;
    set_namespace::<K>(&mut draft, &key)?;
    check_identity::<K>(&draft, current, &key.name)?;
    let draft = match subresource {
        Subresource::Main => with_server_fields(current, draft)?,
        Subresource::Status => with_part(current.clone(), "status", draft.get("status")),
    };
    let mut object = decode::<K>(&draft, &key.name)?;
    object.set_defaults(Some(old), rules);
    let spec_changed =
        serde_json::to_value(&object).is_ok_and(|new| new.get("spec") != current.get("spec"));
    if let Some(generation) = object
        .meta_mut()
        .generation
        .as_mut()
        .filter(|_| spec_changed)
    {
        *generation += 1;
    }
    validated(object, Some(old), rules)
}

/// `draft` with the server's metadata fields and the status of `current`.
fn with_server_fields(current: &Value, mut draft: Value) -> Result<Value, Failure> {
    let meta = metadata(&mut draft)?;
    for name in SERVER_FIELDS {
        meta.remove(name);
        if let Some(value) = current["metadata"].get(name) {
            meta.insert(name.to_owned(), value.clone());
        }
    }
    Ok(with_part(draft, "status", current.get("status")))
}

fn with_part(mut object: Value, name: &str, part: Option<&Value>) -> Value {
    if let Some(fields) = object.as_object_mut() {
        match part {
            Some(part) => drop(fields.insert(name.to_owned(), part.clone())),
            None => drop(fields.remove(name)),
        }
    }
    object
}

/// Refuses a draft with another name, another UID or another resource version.
fn check_identity<K: Kind>(draft: &Value, current: &Value, name: &str) -> Result<(), Failure> {
    let named = fields::text(draft, "metadata.name");
    if named != name {
        let message =
            format!("the name of the object ({named}) does not match the name in the URL ({name})");
        return Err(Failure::bad_request(message));
    }
    for field in ["metadata.uid", "metadata.resourceVersion"] {
        let required = fields::text(draft, field);
        if !required.is_empty() && required != fields::text(current, field) {
            return Err(Failure::conflict::<K>(name));
        }
    }
    Ok(())
}

fn check_kind<K: Kind>(draft: &Value) -> Result<(), Failure> {
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let (draft_version, draft_kind) = (
        fields::text(draft, "apiVersion"),
        fields::text(draft, "kind"),
    );
    if draft_version == version && draft_kind == kind {
        return Ok(());
    }
    let message = format!(
        "this path requires apiVersion {version}, kind {kind}, not apiVersion {draft_version:?}, kind {draft_kind:?}"
    );
    Err(Failure::bad_request(message))
}

/// Sets the path's namespace in the draft; refuses another one.
fn set_namespace<K: Kind>(draft: &mut Value, key: &Key) -> Result<(), Failure> {
    let meta = metadata(draft)?;
    if !K::NAMESPACED {
        meta.remove("namespace");
        return Ok(());
    }
    let named = meta
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !named.is_empty() && named != key.namespace {
        let message = format!(
            "the namespace of the object ({named}) does not match the namespace in the URL ({})",
            key.namespace
        );
        return Err(Failure::bad_request(message));
    }
    meta.insert("namespace".to_owned(), json!(key.namespace));
    Ok(())
}

fn metadata(draft: &mut Value) -> Result<&mut Map<String, Value>, Failure> {
    let meta = draft.get_mut("metadata").and_then(Value::as_object_mut);
    meta.ok_or_else(|| Failure::bad_request("the object has no metadata: add metadata with a name"))
}

fn decode<K: Kind>(draft: &Value, name: &str) -> Result<K, Failure> {
    decode_strict(draft).map_err(|errors| Failure::invalid::<K>(name, &errors))
}

fn validated<K: Kind>(object: K, old: Option<&K>, rules: &Rules<'_>) -> Result<K, Failure> {
    let errors = object.validate(old, rules);
    if errors.is_empty() {
        return Ok(object);
    }
    Err(Failure::invalid::<K>(&object.key().name, &errors))
}

/// The current time in whole seconds, as in Kubernetes.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn uid() -> Result<String, Failure> {
    random_uid().map_err(|error| no_randomness(&error))
}

fn suffix() -> Result<String, Failure> {
    let letters = uid()?.into_bytes();
    // A number for each pair of the UUID's digits.
    let numbers = letters.chunks(2).map(|pair| {
        pair.iter()
            .fold(0_usize, |sum, byte| sum * 31 + usize::from(*byte))
    });
    let character = |number: usize| char::from(SUFFIX_CHARACTERS[number % SUFFIX_CHARACTERS.len()]);
    Ok(numbers.take(SUFFIX_LEN).map(character).collect())
}

fn no_randomness(error: &io::Error) -> Failure {
    Failure::internal(&format!(
        "cannot read /proc/sys/kernel/random/uuid: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use dormouse_autoscaler::settings::Cluster;
    use dormouse_cluster::{App, Object, ServiceRanges};

    use super::*;

    fn draft() -> Value {
        json!({"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web"},
            "spec": {"container": {"command": ["x"]}}})
    }

    static SERVICES: LazyLock<ServiceRanges> =
        LazyLock::new(|| ServiceRanges::parse(&["fd00:96::/108".to_owned()], &[]).unwrap());

    fn rules() -> Rules<'static> {
        Rules {
            ranges: &[],
            autoscaling: Arc::new(Cluster::default()),
            services: &SERVICES,
        }
    }

    fn made() -> App {
        let mut key = Key::new("shop", "");
        let mut draft = draft();
        set_name::<App>(&mut draft, &mut key).unwrap();
        created(draft, &key, &rules()).unwrap()
    }

    fn stored(object: App) -> Stored<App> {
        Stored {
            json: serde_json::to_value(&object).unwrap(),
            object,
        }
    }

    #[test]
    fn a_created_object_has_its_name_metadata_and_defaults() {
        let app = made();
        assert_eq!(
            (app.key(), app.metadata.generation),
            (Key::new("shop", "web"), Some(1))
        );
        assert!(app.metadata.uid.is_some_and(|uid| uid.len() == 36));
        assert_eq!(app.spec.container.name, "app");
    }

    #[test]
    fn an_update_keeps_the_status_and_a_change_of_the_spec_increments_the_generation() {
        let mut old = made();
        old.status.get_or_insert_default().ready = 3;
        let stored = stored(old);
        let mut wanted = draft();
        wanted["spec"]["port"] = json!(81);
        wanted["status"] = json!({"ready": 0});
        let new = updated(wanted, &stored, Subresource::Main, &rules()).unwrap();
        assert_eq!(
            (
                new.metadata.generation,
                new.status.map(|status| status.ready)
            ),
            (Some(2), Some(3))
        );
        let mut wanted = draft();
        wanted["spec"]["port"] = json!(82);
        wanted["status"] = json!({"ready": 1});
        let new = updated(wanted, &stored, Subresource::Status, &rules()).unwrap();
        assert_eq!(
            (new.spec.port, new.status.map(|status| status.ready)),
            (80, Some(1))
        );
    }

    #[test]
    fn a_client_sets_no_metadata_of_the_server() {
        let mut forged = draft();
        for (field, value) in [
            ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("deletionGracePeriodSeconds", json!(0)),
            ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
            ("generation", json!(9)),
            ("selfLink", json!("x")),
        ] {
            forged["metadata"][field] = value;
        }
        let stored = stored(made());
        let new = updated(forged.clone(), &stored, Subresource::Main, &rules()).unwrap();
        assert_eq!(new.metadata, stored.object.metadata);
        let new = created::<App>(forged, &Key::new("shop", "web"), &rules()).unwrap();
        assert_eq!(new.metadata.deletion_timestamp, None);
        assert_eq!(new.metadata.deletion_grace_period_seconds, None);
        assert_eq!(new.metadata.generation, Some(1));
    }

    #[test]
    fn a_draft_with_another_kind_name_namespace_or_uid_is_refused() {
        let stored = stored(made());
        for (path, value) in [
            ("kind", "Pod"),
            ("metadata.name", "other"),
            ("metadata.namespace", "other"),
            ("metadata.uid", "other"),
        ] {
            let mut wanted = draft();
            let field = path
                .split('.')
                .fold(&mut wanted, |value, name| &mut value[name]);
            *field = json!(value);
            assert!(
                updated(wanted, &stored, Subresource::Main, &rules()).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_generated_name_is_the_prefix_and_five_characters() {
        let mut draft = draft();
        draft["metadata"] = json!({"generateName": "web-"});
        let mut key = Key::new("shop", "");
        set_name::<App>(&mut draft, &mut key).unwrap();
        assert!(
            key.name.starts_with("web-") && key.name.len() == 9,
            "{}",
            key.name
        );
    }
}

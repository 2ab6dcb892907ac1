//! From what a client sent to an object that may be stored: named, decoded strictly, completed, validated.

use std::{fs, io};

use dormouse_cluster::{FieldError, Key, VipRange, decode_strict};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Map, Value, json};

use crate::api::{Failure, Kind, fields};

/// Letters of a generated name's end: no vowels, so that no words arise; as in Kubernetes.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters that are added to `generateName`.
const SUFFIX_LEN: usize = 5;
/// Metadata that a client cannot choose.
const OWN: [&str; 5] = [
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "selfLink",
];

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything but the status.
    Main,
    /// The status alone.
    Status,
}

/// Checks that a draft is of the kind and place that its path names, and gives both the same name.
pub(super) fn name<K: Kind>(draft: &mut Value, key: &mut Key) -> Result<(), Failure> {
    of_kind::<K>(draft)?;
    let prefix = fields::text(draft, "metadata.generateName").to_owned();
    let meta = metadata(draft)?;
    let named = meta.get("name").and_then(Value::as_str).unwrap_or_default();
    if !named.is_empty() && !key.name.is_empty() && named != key.name {
        let message = format!(
            "the name of the object ({named}) is not the name in the URL ({})",
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
        let missing = FieldError::required(
            "metadata.name",
            "every object has a name: write name or generateName",
        );
        return Err(Failure::invalid::<K>("", &[missing]));
    }
    meta.insert("name".to_owned(), json!(key.name));
    Ok(())
}

/// The object that a create stores.
pub(super) fn created<K: Kind>(
    mut draft: Value,
    key: &Key,
    ranges: &[VipRange],
) -> Result<K, Failure> {
    in_namespace::<K>(&mut draft, key)?;
    let meta = metadata(&mut draft)?;
    for name in OWN {
        meta.remove(name);
    }
    if let Some(object) = draft.as_object_mut() {
        object.remove("status");
    }
    let mut object = decode::<K>(&draft, &key.name)?;
    object.fill(None);
    let meta = object.meta_mut();
    meta.uid = Some(uid()?);
    meta.creation_timestamp = Some(Time(now()));
    meta.generation = Some(1);
    checked(object, None, ranges)
}

/// The object that an update stores in place of `old`, whose JSON is `current`.
pub(super) fn updated<K: Kind>(
    mut draft: Value,
    (old, current): (&K, &Value),
    part: Part,
    ranges: &[VipRange],
) -> Result<K, Failure> {
    let key = old.key();
    of_kind::<K>(&draft)?;
    in_namespace::<K>(&mut draft, &key)?;
    same_object::<K>(&draft, current, &key.name)?;
    let draft = match part {
        Part::Main => kept_from(current, draft)?,
        Part::Status => with_part(current.clone(), "status", draft.get("status")),
    };
    let mut object = decode::<K>(&draft, &key.name)?;
    object.fill(Some(old));
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
    checked(object, Some(old), ranges)
}

/// `draft` with everything that belongs to the server as it is in `current`.
fn kept_from(current: &Value, mut draft: Value) -> Result<Value, Failure> {
    let meta = metadata(&mut draft)?;
    for name in OWN {
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

/// A draft that names another object, or another revision of it, is refused.
fn same_object<K: Kind>(draft: &Value, current: &Value, name: &str) -> Result<(), Failure> {
    let named = fields::text(draft, "metadata.name");
    if named != name {
        let message =
            format!("the name of the object ({named}) is not the name in the URL ({name})");
        return Err(Failure::bad_request(message));
    }
    for own in ["metadata.uid", "metadata.resourceVersion"] {
        let asked = fields::text(draft, own);
        if !asked.is_empty() && asked != fields::text(current, own) {
            return Err(Failure::conflict::<K>(name));
        }
    }
    Ok(())
}

fn of_kind<K: Kind>(draft: &Value) -> Result<(), Failure> {
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let (draft_version, draft_kind) = (
        fields::text(draft, "apiVersion"),
        fields::text(draft, "kind"),
    );
    if draft_version == version && draft_kind == kind {
        return Ok(());
    }
    let message = format!(
        "this path takes apiVersion {version}, kind {kind}, not apiVersion {draft_version:?}, kind {draft_kind:?}"
    );
    Err(Failure::bad_request(message))
}

/// Writes the path's namespace into the draft; another one is refused.
fn in_namespace<K: Kind>(draft: &mut Value, key: &Key) -> Result<(), Failure> {
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
            "the namespace of the object ({named}) is not the namespace of the request ({})",
            key.namespace
        );
        return Err(Failure::bad_request(message));
    }
    meta.insert("namespace".to_owned(), json!(key.namespace));
    Ok(())
}

fn metadata(draft: &mut Value) -> Result<&mut Map<String, Value>, Failure> {
    let meta = draft.get_mut("metadata").and_then(Value::as_object_mut);
    meta.ok_or_else(|| {
        Failure::bad_request("the object has no metadata: write metadata with a name")
    })
}

fn decode<K: Kind>(draft: &Value, name: &str) -> Result<K, Failure> {
    decode_strict(draft).map_err(|errors| Failure::invalid::<K>(name, &errors))
}

fn checked<K: Kind>(object: K, old: Option<&K>, ranges: &[VipRange]) -> Result<K, Failure> {
    let errors = object.check(old, ranges);
    if errors.is_empty() {
        return Ok(object);
    }
    Err(Failure::invalid::<K>(&object.key().name, &errors))
}

/// Whole seconds, as Kubernetes writes them.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// A random identifier from the kernel.
fn uid() -> Result<String, Failure> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid");
    text.map(|text| text.trim().to_owned())
        .map_err(|error| no_randomness(&error))
}

fn suffix() -> Result<String, Failure> {
    let letters = uid()?.into_bytes();
    // Pairs of hexadecimal digits, evenly enough spread over the letters.
    let numbers = letters.chunks(2).map(|pair| {
        pair.iter()
            .fold(0_usize, |sum, byte| sum * 31 + usize::from(*byte))
    });
    let letter = |number: usize| char::from(NAME_LETTERS[number % NAME_LETTERS.len()]);
    Ok(numbers.take(SUFFIX_LEN).map(letter).collect())
}

fn no_randomness(error: &io::Error) -> Failure {
    Failure::internal(&format!(
        "cannot read a random identifier from the kernel: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_cluster::{App, Object};

    use super::*;

    fn draft() -> Value {
        json!({"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web"},
            "spec": {"container": {"command": ["x"]}}})
    }

    fn made() -> App {
        let mut key = Key::new("shop", "");
        let mut draft = draft();
        name::<App>(&mut draft, &mut key).unwrap();
        created(draft, &key, &[]).unwrap()
    }

    #[test]
    fn a_created_object_is_named_stamped_and_completed() {
        let app = made();
        assert_eq!(
            (app.key(), app.metadata.generation),
            (Key::new("shop", "web"), Some(1))
        );
        assert!(app.metadata.uid.is_some_and(|uid| uid.len() == 36));
        assert_eq!(app.spec.container.name, "app");
    }

    #[test]
    fn an_update_keeps_the_status_and_counts_changes_of_the_spec() {
        let mut old = made();
        old.status.get_or_insert_default().ready = 3;
        let current = serde_json::to_value(&old).unwrap();
        let mut wanted = draft();
        wanted["spec"]["port"] = json!(81);
        wanted["status"] = json!({"ready": 0});
        let new = updated(wanted, (&old, &current), Part::Main, &[]).unwrap();
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
        let new = updated(wanted, (&old, &current), Part::Status, &[]).unwrap();
        assert_eq!(
            (new.spec.port, new.status.map(|status| status.ready)),
            (80, Some(1))
        );
    }

    #[test]
    fn a_draft_of_another_kind_name_or_place_is_refused() {
        let old = made();
        let current = serde_json::to_value(&old).unwrap();
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
                updated(wanted, (&old, &current), Part::Main, &[]).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_generated_name_is_its_prefix_and_five_letters() {
        let mut draft = draft();
        draft["metadata"] = json!({"generateName": "web-"});
        let mut key = Key::new("shop", "");
        name::<App>(&mut draft, &mut key).unwrap();
        assert!(
            key.name.starts_with("web-") && key.name.len() == 9,
            "{}",
            key.name
        );
    }
}

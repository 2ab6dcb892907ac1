//! Strategic merge patches: as RFC 7396, but the items of some lists are merged by a key. Which lists these are depends on the kind.

mod keyed;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::api::Failure;
use keyed::Keyed;

/// The directive of a map: `delete` removes the item of a list with the same key, `replace` replaces the map or the list.
const DIRECTIVE: &str = "$patch";
/// The directive that removes words from the set that it names.
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// The field by which the items of the list in `field` are merged; `None`: the list is replaced.
fn merge_key(kind: &str, field: &str) -> Option<&'static str> {
    match (kind, field) {
        ("Service", "ports") => Some("port"),
        ("App" | "Pod", "ports") => Some("containerPort"),
        ("App" | "Pod", "volumeMounts") => Some("mountPath"),
        ("App" | "Pod", "containers" | "initContainers" | "env" | "volumes") => Some("name"),
        ("Node", "addresses") | (_, "conditions") => Some("type"),
        (_, "ownerReferences") => Some("uid"),
        _ => None,
    }
}

/// Whether the list in `field` is a set of words, to which a patch adds.
fn is_set(field: &str) -> bool {
    field == "finalizers"
}

/// Merges a patch into an object of a kind. Other directives than [`DIRECTIVE`] and [`DELETE_FROM`] are ignored: the one that `kubectl
/// apply` sends is the order of a list, which changes nothing here. An error: an item lacks the key of its list.
pub(super) fn merge(kind: &str, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = without_directives(patch);
        return Ok(());
    };
    let is_replaced = patch.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
    if is_replaced {
        target.clear();
    }
    for (name, value) in fields(patch) {
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let old = target.entry(name.clone()).or_insert(Value::Null);
        match (value, merge_key(kind, name)) {
            (Value::Array(items), Some(key)) => merge_list(kind, (name, key), old, items)?,
            (Value::Array(words), None) if is_set(name) && old.is_array() => add(old, words),
            _ => merge(kind, old, value)?,
        }
    }
    for (name, words) in patch {
        if let Some(Value::Array(set)) = name
            .strip_prefix(DELETE_FROM)
            .and_then(|name| target.get_mut(name))
        {
            let removed: HashSet<&Value> = words.as_array().into_iter().flatten().collect();
            set.retain(|word| !removed.contains(word));
        }
    }
    Ok(())
}

/// Adds the words that a set has not.
fn add(set: &mut Value, words: &[Value]) {
    if let Value::Array(set) = set {
        let mut known: HashSet<&Value> = set.iter().collect();
        let new = words.iter().filter(|word| known.insert(word));
        let new: Vec<Value> = new.cloned().collect();
        set.extend(new);
    }
}

/// Merges the items of the list in a field whose values of the key are equal.
fn merge_list(
    kind: &str,
    (field, key): (&str, &str),
    list: &mut Value,
    items: &[Value],
) -> Result<(), Failure> {
    let directive = |item: &Value| {
        item.get(DIRECTIVE)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let is_replaced = items
        .iter()
        .any(|item| directive(item).as_deref() == Some("replace"));
    if is_replaced || !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else {
        return Ok(());
    };
    let mut keyed = Keyed::new(key, std::mem::take(list));
    for item in items {
        let directive = directive(item);
        if directive.as_deref() == Some("replace") {
            continue;
        }
        let Some(value) = item.get(key) else {
            return Err(Failure::bad_request(format!(
                "an item of {field} in the patch does not contain declared merge key: {key}"
            )));
        };
        let old = keyed.take_first(value);
        match (directive.as_deref(), old) {
            (Some("delete"), _) => {}
            (_, Some((place, mut old))) => {
                merge(kind, &mut old, item)?;
                keyed.put(place, old);
            }
            (_, None) => keyed.push(without_directives(item)),
        }
    }
    *list = keyed.into_list();
    Ok(())
}

/// The fields of a patch that are not directives.
fn fields(patch: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    patch.iter().filter(|(name, _)| !name.starts_with('$'))
}

/// A patch of nothing: its values, without nulls.
fn without_directives(patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let kept = fields(patch).filter(|(_, value)| !value.is_null());
    kept.map(|(name, value)| (name.clone(), without_directives(value)))
        .collect()
}

#[cfg(test)]
mod tests;

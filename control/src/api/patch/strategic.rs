//! Strategic merge patches: as RFC 7396, but the items of some lists are merged by a key. Which lists these are depends on the kind.

use serde_json::{Map, Value};

use crate::api::Failure;

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
            set.retain(|word| !words.as_array().is_some_and(|words| words.contains(word)));
        }
    }
    Ok(())
}

/// Adds the words that a set has not.
fn add(set: &mut Value, words: &[Value]) {
    if let Value::Array(set) = set {
        for word in words {
            if !set.contains(word) {
                set.push(word.clone());
            }
        }
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
        let place = list.iter().position(|one| one.get(key) == Some(value));
        match (directive.as_deref(), place) {
            (Some("delete"), Some(place)) => drop(list.remove(place)),
            (Some("delete"), None) => {}
            (_, Some(place)) => merge(kind, &mut list[place], item)?,
            (_, None) => list.push(without_directives(item)),
        }
    }
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
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: &str, mut object: Value, patch: &Value, want: &Value) {
        merge(kind, &mut object, patch).unwrap();
        assert_eq!(object, *want, "{patch}");
    }

    #[test]
    fn containers_are_merged_by_name_and_other_lists_replaced() {
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "command": ["x"]}], "list": [1]}}),
            &json!({"spec": {"$setElementOrder/containers": [{"name": "a"}],
                "containers": [{"name": "a", "image": "i"}, {"name": "b", "$patch": "merge"}], "list": [2]}}),
            &json!({"spec": {"containers": [{"name": "a", "command": ["x"], "image": "i"}, {"name": "b"}], "list": [2]}}),
        );
    }

    #[test]
    fn ports_of_a_service_are_merged_by_number_and_deleted() {
        let object = json!({"spec": {"ports": [{"port": 80, "nodePort": 30_080}, {"port": 81}]}});
        let ports = json!([{"port": 80, "targetPort": 8_080}, {"port": 81, "$patch": "delete"}, {"port": 9, "$patch": "delete"}]);
        check(
            "Service",
            object.clone(),
            &json!({"spec": {"ports": ports}}),
            &json!({"spec": {"ports": [{"port": 80, "nodePort": 30_080, "targetPort": 8_080}]}}),
        );
        check(
            "Service",
            object.clone(),
            &json!({"spec": {"ports": [{"port": 82}, {"$patch": "replace"}], "selector": null}}),
            &json!({"spec": {"ports": [{"port": 82}]}}),
        );
        check(
            "Service",
            object,
            &json!({"spec": {"$patch": "replace", "type": "ExternalName"}}),
            &json!({"spec": {"type": "ExternalName"}}),
        );
    }

    #[test]
    fn ports_of_a_slice_and_taints_are_replaced() {
        let ports = |numbers: &[u16]| {
            let ports = numbers
                .iter()
                .map(|number| json!({"name": "a", "port": number}));
            json!({"ports": ports.collect::<Vec<_>>()})
        };
        check("EndpointSlice", ports(&[80]), &ports(&[81]), &ports(&[81]));
        let taints = json!({"taints": [{"key": "a"}]});
        check("Node", json!({"taints": [{"key": "b"}]}), &taints, &taints);
    }

    #[test]
    fn finalizers_are_added_and_an_item_without_its_key_is_refused() {
        let finalizers = |words: &[&str]| json!({"metadata": {"finalizers": words}});
        check(
            "Service",
            finalizers(&["a"]),
            &finalizers(&["b", "a"]),
            &finalizers(&["a", "b"]),
        );
        let removal = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
        check(
            "Service",
            finalizers(&["a", "b"]),
            &removal,
            &finalizers(&["b"]),
        );
        let mut service = json!({"spec": {"ports": [{"port": 80}]}});
        let patch = json!({"spec": {"ports": [{"targetPort": 81}]}});
        assert!(merge("Service", &mut service, &patch).is_err());
    }
}

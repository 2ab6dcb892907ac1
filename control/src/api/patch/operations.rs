//! JSON patches, RFC 6902, within the limits of kube-apiserver: a few operations that copy the object into itself would take all memory.

use std::io::{self, Write};

use json_patch::{PatchOperation, patch_unsafe};
use serde_json::Value;

use crate::api::Failure;

/// Most operations of a patch; kube-apiserver's limit.
const OPERATIONS_MAX: usize = 10_000;
/// Most bytes, as JSON, that all operations of a patch copy or move; kube-apiserver's limit for copies.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Most items of lists that all operations of a patch shift: one that adds or removes an item shifts those after it.
const SHIFTED_MAX: usize = 100_000_000;
/// Deepest nesting of maps and lists in a patched object: JSON that is deeper is not decoded.
const DEPTH_MAX: usize = 127;

/// Refuses a patch with too many operations.
pub(super) fn check_count(patch: &[PatchOperation]) -> Result<(), Failure> {
    if patch.len() <= OPERATIONS_MAX {
        return Ok(());
    }
    Err(Failure::entity_too_large(&format!(
        "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
        patch.len()
    )))
}

/// Applies a patch. What an operation would add is measured before it is applied. After an error, the object is of no use.
pub(super) fn apply(object: &mut Value, patch: &[PatchOperation]) -> Result<(), Failure> {
    let (mut copied, mut shifted) = (0, 0);
    for (index, operation) in patch.iter().enumerate() {
        let (added, source) = match operation {
            PatchOperation::Add(add) => (Some(&add.value), None),
            PatchOperation::Replace(replace) => (Some(&replace.value), None),
            PatchOperation::Copy(copy) => (None, object.pointer(copy.from.as_str())),
            PatchOperation::Move(one) => (None, object.pointer(one.from.as_str())),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, None),
        };
        shifted += shifts(object, operation);
        check_shifted(shifted)?;
        if let Some(source) = source {
            copied += size(source, COPIED_BYTES_MAX - copied)?;
        }
        if let Some(value) = added.or(source) {
            check_depth(operation.path().as_str(), value)?;
        }
        patch_unsafe(object, std::slice::from_ref(operation)).map_err(|error| {
            let (place, kind) = (&error.path, &error.kind);
            Failure::bad_request(format!(
                "cannot apply the JSON patch: operation '/{index}' failed at path '{place}': {kind}"
            ))
        })?;
    }
    Ok(())
}

/// The items that an operation shifts, at most.
fn shifts(object: &Value, operation: &PatchOperation) -> usize {
    let after = |path: &str| {
        let (list, index) = path.rsplit_once('/')?;
        let list = object.pointer(list)?.as_array()?;
        list.len().checked_sub(index.parse().ok()?)
    };
    let after = |path: &str| after(path).unwrap_or(0);
    let path = operation.path().as_str();
    match operation {
        PatchOperation::Add(_) | PatchOperation::Remove(_) | PatchOperation::Copy(_) => after(path),
        PatchOperation::Move(one) => after(one.from.as_str()) + after(path),
        PatchOperation::Replace(_) | PatchOperation::Test(_) => 0,
    }
}

fn check_shifted(items: usize) -> Result<(), Failure> {
    if items <= SHIFTED_MAX {
        return Ok(());
    }
    Err(Failure::entity_too_large(&format!(
        "The operations shift more than {SHIFTED_MAX} items of lists: replace such a list whole"
    )))
}

/// The bytes of a value as JSON; fails if they are more than `bytes_max`.
fn size(value: &Value, bytes_max: usize) -> Result<usize, Failure> {
    let mut room = Room(bytes_max);
    serde_json::to_writer(&mut room, value).map_err(|_full| {
        Failure::entity_too_large(&format!(
            "The operations copy and move more than {COPIED_BYTES_MAX} bytes of JSON"
        ))
    })?;
    Ok(bytes_max - room.0)
}

/// Takes as many bytes, and keeps none.
struct Room(usize);

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.0.checked_sub(bytes.len());
        self.0 = rest.ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check_depth(path: &str, value: &Value) -> Result<(), Failure> {
    // A slash in a name is written ~1.
    let depth = path.matches('/').count() + depth(value);
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "cannot apply the JSON patch: maps and lists would be nested {depth} deep, more than {DEPTH_MAX}"
    )))
}

/// The nesting of maps and lists in a value. No value here is deeper than JSON is decoded, so that the recursion ends.
fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut object: Value, patch: Value) -> Result<Value, Failure> {
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        check_count(&patch)?;
        apply(&mut object, &patch)?;
        Ok(object)
    }

    fn refusal(object: Value, patch: Value) -> (u64, String) {
        let failure = patched(object, patch).unwrap_err();
        let code = failure.status()["code"].as_u64().unwrap();
        (code, failure.message().to_owned())
    }

    fn copy(from: &str, path: &str) -> Value {
        json!({"op": "copy", "from": from, "path": path})
    }

    #[test]
    fn copies_above_the_limit_are_refused_before_they_are_made() {
        let object = json!({"data": "x".repeat(100_000)});
        let doubled: Vec<Value> = (0..24)
            .map(|number| copy("", &format!("/copy{number}")))
            .collect();
        let (code, message) = refusal(object.clone(), json!(doubled));
        assert_eq!(code, 413);
        assert!(message.contains("more than 3145728 bytes"), "{message}");
        let list = json!({"data": ["x".repeat(1 << 20)]});
        let appended = vec![copy("/data/0", "/data/-"); 3];
        assert_eq!(refusal(list, json!(appended)).0, 413);
        let few = vec![copy("/data", "/copy"); 31];
        assert!(patched(object, json!(few)).is_ok());
    }

    #[test]
    fn a_patch_of_too_many_operations_is_refused() {
        let test = json!({"op": "test", "path": "/a", "value": 1});
        let patch = |count| json!(vec![test.clone(); count]);
        assert!(patched(json!({"a": 1}), patch(OPERATIONS_MAX)).is_ok());
        let (code, message) = refusal(json!({"a": 1}), patch(OPERATIONS_MAX + 1));
        assert_eq!(code, 413);
        assert!(message.ends_with("is 10000, got 10001"), "{message}");
    }

    #[test]
    fn operations_that_shift_too_many_items_are_refused() {
        let many = SHIFTED_MAX / OPERATIONS_MAX * 2;
        let list = |len| json!({"list": vec![0; len]});
        let add = |place| json!({"op": "add", "path": format!("/list/{place}"), "value": 0});
        let moves = json!({"op": "move", "from": "/list/0", "path": format!("/list/{}", many - 1)});
        let remove = json!({"op": "remove", "path": "/list/0"});
        for operation in [add("0"), remove, moves] {
            let patch = json!(vec![operation; OPERATIONS_MAX]);
            let (code, message) = refusal(list(many), patch);
            assert_eq!(code, 413);
            assert!(
                message.contains("shift more than 100000000 items"),
                "{message}"
            );
        }
        let append = json!(vec![add("-"); OPERATIONS_MAX]);
        assert!(patched(list(many), append).is_ok());
        let few = json!(vec![add("0"); 100]);
        assert!(patched(list(many), few).is_ok());
    }

    #[test]
    fn no_operation_nests_deeper_than_json_is_decoded() {
        let nested = |depth| (0..depth).fold(json!(1), |value, _| json!({"a": value}));
        let below = "/a".repeat(100);
        let (object, deep) = (nested(101), nested(30));
        let with = |operation: Value| {
            let first = json!({"op": "add", "path": "/b", "value": deep.clone()});
            refusal(object.clone(), json!([first, operation]))
        };
        for operation in [
            json!({"op": "add", "path": format!("{below}/c"), "value": deep.clone()}),
            json!({"op": "replace", "path": below.clone(), "value": deep.clone()}),
            json!({"op": "move", "from": "/b", "path": below.clone()}),
            copy("/b", &below),
        ] {
            let (code, message) = with(operation);
            assert_eq!(code, 400);
            assert!(message.contains("deep, more than 127"), "{message}");
        }
        let text = patched(nested(101), json!([copy("/a/a/a", "/b")]));
        let text = text.unwrap().to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }

    #[test]
    fn an_operation_that_fails_is_named() {
        let patch = json!([{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
        let (code, message) = refusal(json!({"a": 1}), patch);
        assert_eq!(code, 400);
        let want = "operation '/1' failed at path '/a': value did not match";
        assert!(message.ends_with(want), "{message}");
    }
}

//! Strict decoding: known fields are decoded, unknown fields are errors with their paths.

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{App, Period};

fn app() -> Value {
    json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": "docs", "namespace": "default", "creationTimestamp": null, "labels": {}},
        "spec": {
            "vip": "fd00:10::1", "port": 80,
            "container": {"name": "app", "command": ["/bin/true"], "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "100m"}}},
            "scale": {"window": "6s", "targetBurstCapacity": 0},
        },
        "status": null,
    })
}

fn errors(value: &Value) -> Vec<FieldError> {
    decode_strict::<App>(value).err().unwrap_or_default()
}

#[test]
fn a_valid_manifest_with_empty_fields_is_decoded() {
    let app: App = decode_strict(&app()).unwrap();
    assert_eq!(app.spec.scale.window, Some(Period::seconds(6)));
    assert_eq!(app.spec.target_port(), 80);
}

#[test]
fn an_unknown_field_is_reported_with_its_path_and_a_suggestion() {
    let mut value = app();
    value["spec"]["container"]["comand"] = json!(["x"]);
    value["spec"]["container"]["env"][0]["vaule"] = json!(null);
    value["spec"]["replicas"] = json!({});
    let errors = errors(&value);
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.container.comand",
            "spec.container.env[0].vaule",
            "spec.replicas"
        ]
    );
    assert!(
        errors[0].message.contains("did you mean `command`?"),
        "{}",
        errors[0].message
    );
    assert!(
        errors[2]
            .message
            .contains("container, nodeSelector, paused, port"),
        "{}",
        errors[2].message
    );
    assert!(errors.iter().all(|error| error.cause == CauseType::Unknown));
}

#[test]
fn a_value_of_the_wrong_type_is_reported_with_its_path() {
    let mut value = app();
    value["spec"]["scale"]["window"] = json!("6 parsecs");
    let found = errors(&value);
    assert_eq!(found[0].field, "spec.scale.window");
    assert!(
        found[0].message.contains("write a number and a unit"),
        "{}",
        found[0].message
    );
    let mut value = app();
    value["spec"]["port"] = json!(70_000);
    let found = errors(&value);
    assert_eq!(
        found[0].to_string(),
        "spec.port: is 70000, must be a whole number from 0 to 65535"
    );
    for sticky in [json!({}), json!({"header": "a", "cookie": "b"})] {
        let mut value = app();
        value["spec"]["sticky"] = sticky;
        assert_eq!(
            errors(&value)[0].to_string(),
            "spec.sticky: must have exactly one of the fields clientIP, cookie, header"
        );
    }
    let mut value = app();
    value["spec"].as_object_mut().unwrap().remove("container");
    let missing = errors(&value);
    assert_eq!(
        (missing[0].field.as_str(), missing[0].cause),
        ("spec.container", CauseType::Required)
    );
}

#[test]
fn an_unknown_nested_field_of_a_pod_is_found() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "readinessProbe": {"httpGet": {"port": 80, "pth": "/"}}}]}});
    let errors = decode_strict::<Pod>(&pod).unwrap_err();
    assert_eq!(
        errors[0].field,
        "spec.containers[0].readinessProbe.httpGet.pth"
    );
    assert!(
        errors[0].message.contains("did you mean `path`?"),
        "{}",
        errors[0].message
    );
}

#[test]
fn of_many_unknown_fields_the_first_are_named_and_the_known_ones_listed_once() {
    let mut value = app();
    let env = |number| json!({"name": "A", "value": null, format!("x{number:04}"): 1});
    value["spec"]["container"]["env"] = (0..5_000).map(env).collect();
    let errors = errors(&value);
    assert_eq!(errors.len(), 50);
    let listing = "known fields: name, value, valueFrom";
    assert_eq!(errors[0].message, format!("unknown field; {listing}"));
    let last = &errors[49];
    assert_eq!(last.field, "spec.container.env[49].x0049");
    assert_eq!(last.message, "unknown field; and 4950 more unknown fields");
    let listings = errors
        .iter()
        .filter(|error| error.message.contains(listing));
    assert_eq!(listings.count(), 1);
}

/// JSON pointers of all objects in `value`.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            // Maps with free keys have no unknown fields.
            if !["labels", "requests"].iter().any(|map| at.ends_with(map)) {
                found.push(at.to_owned());
            }
            fields
                .iter()
                .for_each(|(name, value)| objects(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| objects(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_unknown_field_in_any_object_is_found(name in "x[a-z]{3,12}", pick: prop::sample::Index) {
        let mut value = app();
        let mut found = Vec::new();
        objects(&value, "", &mut found);
        let place = pick.get(&found);
        value.pointer_mut(place).unwrap()[&name] = json!(1);
        let errors = errors(&value);
        prop_assert_eq!(errors.len(), 1);
        prop_assert!(errors[0].field.ends_with(&name));
    }
}

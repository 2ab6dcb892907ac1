//! Validation: each error has its field, and a message that says how to fix it.

mod container;
mod scale;
mod traffic;

use serde_json::{Value, json};

use super::*;
use crate::decode_strict;

fn decoded(change: impl FnOnce(&mut Value)) -> App {
    let mut value = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": "docs", "namespace": "default"},
        "spec": {"container": {"name": "app", "command": ["/bin/true"]}},
    });
    change(&mut value);
    decode_strict(&value).unwrap()
}

fn errors_of(app: &App, ranges: &[VipRange]) -> Vec<FieldError> {
    super::app(None, app, ranges, &Cluster::starting_asleep(30_000))
}

fn check(change: impl FnOnce(&mut Value), field: &str, message: &str) {
    let errors = errors_of(&decoded(change), &["fd00:10::/108".parse().unwrap()]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].field, field);
    assert!(errors[0].message.contains(message), "{}", errors[0].message);
}

#[test]
fn a_manifest_with_only_a_command_is_valid() {
    assert_eq!(errors_of(&decoded(|_| {}), &[]), vec![]);
}

#[test]
fn each_error_has_its_field_and_a_fix() {
    check(
        |v| v["spec"]["vip"] = json!("fd00:11::1"),
        "spec.vip",
        "outside this cluster's VIP ranges (fd00:10::/108)",
    );
    check(
        |v| v["spec"]["port"] = json!(0),
        "spec.port",
        "use 1 to 65535",
    );
    check(
        |v| v["spec"]["targetPort"] = json!(0),
        "spec.targetPort",
        "use 1 to 65535",
    );
    check(
        |v| v["spec"]["timeout"] = json!("0s"),
        "spec.timeout",
        "longer than 0",
    );
    check(
        |v| v["spec"]["container"]["command"] = json!([]),
        "spec.container.command",
        "is required",
    );
    check(
        |v| v["spec"]["container"]["env"] = json!([{"name": "A=B"}]),
        "spec.container.env[0].name",
        "not a valid environment variable name",
    );
    check(
        |v| v["metadata"]["name"] = json!("Docs"),
        "metadata.name",
        "lower-case",
    );
    check(
        |v| v["metadata"]["name"] = json!("../x"),
        "metadata.name",
        "lower-case",
    );
    check(
        |v| v["metadata"]["name"] = json!("a".repeat(53)),
        "metadata.name",
        "at most 52",
    );
    check(
        |v| v["spec"]["scale"] = json!({"window": "5s"}),
        "spec.scale.window",
        "between 6s and 1h",
    );
    check(
        |v| v["spec"]["scale"] = json!({"min": 3, "max": 2}),
        "spec.scale.min",
        "above max 2",
    );
    check(
        |v| v["spec"]["scale"] = json!({"targetUtilization": 70.0}),
        "spec.scale.targetUtilization",
        "and 1",
    );
    check(
        |v| v["spec"]["scale"] = json!({"targetBurstCapacity": -2.0}),
        "spec.scale.targetBurstCapacity",
        "-1",
    );
    check(
        |v| v["spec"]["scale"] = json!({"activationScale": 0}),
        "spec.scale.activationScale",
        "at least 1",
    );
}

#[test]
fn a_node_selector_is_made_of_labels() {
    let selector = |key: &str, value: &str| {
        let selector = json!({key: value});
        move |v: &mut Value| v["spec"]["nodeSelector"] = selector
    };
    for key in [
        "bad key!",
        "",
        "-a",
        "a/b/c",
        "a..b/c",
        "UPPER/a",
        "example.com/",
    ] {
        let field = format!("spec.nodeSelector.{key}");
        check(selector(key, "a"), &field, "63 characters; before a `/`");
    }
    for value in ["a b", "a-", "/"] {
        check(
            selector("disk", value),
            "spec.nodeSelector.disk",
            "is no value",
        );
    }
    check(
        selector("disk", &"a".repeat(64)),
        "spec.nodeSelector.disk",
        "63",
    );
    for (key, value) in [("disk", ""), ("example.com/Disk_1", "SSD.2"), ("a", "b")] {
        let app = decoded(selector(key, value));
        assert_eq!(errors_of(&app, &[]), vec![], "{key}");
    }
}

#[test]
fn a_wake_timeout_is_longer_than_0_and_not_longer_than_the_requests_timeout() {
    check(
        |v| v["spec"]["wakeTimeout"] = json!("0s"),
        "spec.wakeTimeout",
        "longer than 0",
    );
    check(
        |v| v["spec"]["wakeTimeout"] = json!("6m"),
        "spec.wakeTimeout",
        "longer than timeout, 300s",
    );
}

#[test]
fn the_vip_of_an_app_is_immutable() {
    let old = decoded(|v| v["spec"]["vip"] = json!("fd00:10::1"));
    let new = decoded(|v| v["spec"]["vip"] = json!("fd00:10::2"));
    assert_eq!(app_update(&old, &old), vec![]);
    assert_eq!(app_update(&old, &new)[0].field, "spec.vip");
}

#[test]
fn a_pod_without_a_container_is_refused() {
    let pod: Pod = serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
    )
    .unwrap();
    assert_eq!(super::pod(&pod)[0].field, "spec.containers");
}

/// A child of the app `docs`, as control has created it.
fn child_app() -> App {
    decoded(|v| {
        v["metadata"] = json!({
            "name": "docs-2", "namespace": "default", "labels": {"dormouse.dev/parent": "docs"},
            "ownerReferences": [{
                "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "name": "docs", "uid": "a", "controller": true,
            }],
        });
    })
}

#[test]
fn clients_neither_make_nor_change_a_child() {
    let old = child_app();
    assert_eq!(child(Some(&old), &old), vec![]);
    let mut labelled = old.clone();
    labelled
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("a".to_owned(), "b".to_owned());
    assert_eq!(child(Some(&old), &labelled), vec![], "labels of its own");
    let refused = |old: Option<&App>, new: &App, message: &str| {
        let errors = child(old, new);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].message.contains(message), "{}", errors[0].message);
    };
    let mut changed = old.clone();
    changed.spec.scale.max = Some(3);
    refused(
        Some(&old),
        &changed,
        "change the settings of docs, or its spec.traffic",
    );
    let mut orphan = old.clone();
    orphan.metadata.owner_references = None;
    refused(Some(&old), &orphan, "docs");
    refused(None, &old, "only control sets it");
    let plain = decoded(|_| {});
    refused(Some(&plain), &old, "only control sets it");
    refused(Some(&old), &plain, "only control sets it");
    assert_eq!(child(Some(&plain), &plain), vec![]);
}

#[test]
fn the_one_config_map_has_knatives_limits() {
    let errors = |namespace: &str, data: Value| {
        let map = json!({"metadata": {"name": "config-autoscaler", "namespace": namespace}, "data": data});
        config_map(&serde_json::from_value(map).unwrap())
    };
    let valid = json!({"min-scale": "1", "stable-window": "40s", "_example": "stable-window: x"});
    assert_eq!(errors("dormouse-system", valid), vec![]);
    let found = errors(
        "dormouse-system",
        json!({"stable-window": "5s", "max-scale": "-1"}),
    );
    let fields: Vec<_> = found.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["data.stable-window", "data.max-scale"]);
    assert!(
        found[0].message.contains("from 6s to 1h"),
        "{}",
        found[0].message
    );
    assert_eq!(errors("shop", json!({}))[0].field, "metadata.name");
}

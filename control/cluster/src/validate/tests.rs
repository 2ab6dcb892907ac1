//! Validation: each error has its field, and a message that says how to fix it.

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

fn check(change: impl FnOnce(&mut Value), field: &str, message: &str) {
    let errors = app(&decoded(change), &["fd00:10::/108".parse().unwrap()]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].field, field);
    assert!(errors[0].message.contains(message), "{}", errors[0].message);
}

#[test]
fn a_manifest_with_only_a_command_is_valid() {
    assert_eq!(app(&decoded(|_| {}), &[]), vec![]);
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
fn what_a_node_would_ignore_is_refused() {
    let container = |field: &'static str, value: Value| {
        move |v: &mut Value| v["spec"]["container"][field] = value
    };
    check(
        container(
            "volumeMounts",
            json!([{"name": "data", "mountPath": "/data"}]),
        ),
        "spec.container.volumeMounts",
        "is not supported",
    );
    check(
        container("securityContext", json!({"runAsUser": 1})),
        "spec.container.securityContext",
        "is not supported",
    );
    check(
        container("readinessProbe", json!({"exec": {"command": ["true"]}})),
        "spec.container.readinessProbe.exec",
        "is not supported",
    );
    let https = json!({"httpGet": {"port": 80, "scheme": "HTTPS"}});
    check(
        container("livenessProbe", https),
        "spec.container.livenessProbe.httpGet.scheme",
        "use HTTP",
    );
    let get = json!({"port": 80, "host": "example.com"});
    check(
        container("livenessProbe", json!({"httpGet": get})),
        "spec.container.livenessProbe.httpGet.host",
        "is not supported",
    );
    check(
        container("livenessProbe", json!({"periodSeconds": 0})),
        "spec.container.livenessProbe.periodSeconds",
        "at least 1",
    );
    let all = json!({
        "httpGet": {"path": "/up", "port": 80, "scheme": "HTTP"}, "periodSeconds": 5,
        "timeoutSeconds": 2, "failureThreshold": 3, "initialDelaySeconds": 0, "successThreshold": 1,
    });
    let valid = decoded(container("livenessProbe", all));
    assert_eq!(app(&valid, &[]), vec![]);
}

#[test]
fn quantities_are_checked() {
    let resources = |value: Value| move |v: &mut Value| v["spec"]["container"]["resources"] = value;
    check(
        resources(json!({"requests": {"cpu": "much"}})),
        "spec.container.resources.requests.cpu",
        "not a quantity",
    );
    check(
        resources(json!({"limits": {"memory": "-1Mi"}})),
        "spec.container.resources.limits.memory",
        "not a quantity",
    );
    check(
        resources(json!({"requests": {"nvidia.com/gpu": "1"}})),
        "spec.container.resources.requests.nvidia.com/gpu",
        "cpu and memory",
    );
    check(
        resources(json!({"requests": {"memory": "65Mi"}, "limits": {"memory": "64Mi"}})),
        "spec.container.resources.requests.memory",
        "above the limit, `64Mi`",
    );
    let valid =
        resources(json!({"requests": {"cpu": "250m", "memory": "1.5Gi"}, "limits": {"cpu": "1"}}));
    assert_eq!(app(&decoded(valid), &[]), vec![]);
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

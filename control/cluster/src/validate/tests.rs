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
fn a_template_that_three_times_exceeds_a_request_to_the_store_is_refused() {
    check(
        |v| v["spec"]["container"]["args"] = json!(["a".repeat(400 << 10)]),
        "spec.container",
        "at most 409600 are stored",
    );
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
fn a_number_that_is_a_typing_error_is_refused_with_its_bound() {
    let scale = |value: Value| move |v: &mut Value| v["spec"]["scale"] = value;
    for field in ["min", "initialScale", "activationScale"] {
        check(
            scale(json!({field: u32::MAX})),
            &format!("spec.scale.{field}"),
            "must be at most 100000",
        );
        let most = decoded(scale(json!({field: 100_000})));
        assert_eq!(errors_of(&most, &[]), vec![]);
    }
    check(
        scale(json!({"target": 1e308})),
        "spec.scale.target",
        "between 0.01 and 1000000000",
    );
    for (name, amount) in [("cpu", "100000000000000000000"), ("memory", "1e30")] {
        check(
            |v| v["spec"]["container"]["resources"] = json!({"requests": {name: amount}}),
            &format!("spec.container.resources.requests.{name}"),
            "is too large: use at most 8Pi",
        );
    }
}

#[test]
fn a_node_selector_is_made_of_labels() {
    let selector = |key: &str, value: &str| {
        let selector = json!({key: value});
        move |v: &mut Value| v["spec"]["nodeSelector"] = selector
    };
    for key in ["bad key!", "", "-a", "a/b/c", "UPPER/a", "example.com/"] {
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
fn annotations_of_the_autoscaler_have_knatives_limits() {
    let annotations = |values: Value| move |v: &mut Value| v["metadata"]["annotations"] = values;
    check(
        annotations(json!({"autoscaling.knative.dev/minScale": "-1"})),
        "metadata.annotations.autoscaling.knative.dev/minScale",
        "\"-1\" is not valid: must be an integer from 0 to 2147483647",
    );
    check(
        annotations(json!({
            "autoscaling.knative.dev/min-scale": "3", "autoscaling.knative.dev/max-scale": "2",
        })),
        "metadata.annotations.autoscaling.knative.dev/max-scale",
        "must be at least min-scale, which is 3",
    );
    check(
        annotations(json!({"autoscaling.knative.dev/class": "hpa.autoscaling.knative.dev"})),
        "metadata.annotations.autoscaling.knative.dev/class",
        "the only class",
    );
    let fine = json!({
        "autoscaling.knative.dev/initial-scale": "4", "autoscaling.knative.dev/max-scale": "2",
        "autoscaling.knative.dev/unknown": "x", "example.com/min-scale": "-1",
    });
    assert_eq!(errors_of(&decoded(annotations(fine)), &[]), vec![]);
}

#[test]
fn the_time_in_proxy_mode_is_at_most_an_hour() {
    check(
        |v| v["spec"]["scale"] = json!({"proxyDwell": "61m"}),
        "spec.scale.proxyDwell",
        "at most 1h",
    );
}

#[test]
fn numbers_of_pods_in_the_manifest_and_in_annotations_limit_each_other() {
    let with = |scale: Value, name: &str, pods: &str| {
        let annotation = json!({format!("autoscaling.knative.dev/{name}"): pods});
        move |v: &mut Value| {
            v["metadata"]["annotations"] = annotation;
            v["spec"]["scale"] = scale;
        }
    };
    check(
        with(json!({"min": 3}), "max-scale", "2"),
        "spec.scale.min",
        "is above max 2",
    );
    check(
        with(json!({"max": 2}), "min-scale", "3"),
        "spec.scale.min",
        "is above max 2",
    );
    let wins = with(json!({"max": 3}), "max-scale", "2");
    assert_eq!(errors_of(&decoded(wins), &[]), vec![]);
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
    assert_eq!(errors_of(&valid, &[]), vec![]);
}

#[test]
fn what_no_pod_could_run_or_probe_is_refused() {
    let probe = "spec.container.readinessProbe";
    for (field, value, at, message) in [
        (
            "readinessProbe",
            json!({"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}),
            probe.to_owned(),
            "does one of them",
        ),
        (
            "readinessProbe",
            json!({"httpGet": {"port": 99_999}}),
            format!("{probe}.httpGet.port"),
            "use 1 to 65535",
        ),
        (
            "readinessProbe",
            json!({"tcpSocket": {"port": "web"}}),
            format!("{probe}.tcpSocket.port"),
            "`web` is not the name of a port",
        ),
        (
            "readinessProbe",
            json!({"httpGet": {"port": 80, "path": "/a b\r\nx: y"}}),
            format!("{probe}.httpGet.path"),
            "must begin with /",
        ),
        (
            "ports",
            json!([{"containerPort": 80}, {"containerPort": 0}]),
            "spec.container.ports[1].containerPort".to_owned(),
            "use 1 to 65535",
        ),
        (
            "args",
            json!(["a\0b"]),
            "spec.container.args".to_owned(),
            "a NUL character",
        ),
        (
            "env",
            json!([{"name": "A", "value": "a\0b"}]),
            "spec.container.env[0].value".to_owned(),
            "a NUL character",
        ),
        (
            "workingDir",
            json!("srv"),
            "spec.container.workingDir".to_owned(),
            "an absolute path",
        ),
    ] {
        check(|v| v["spec"]["container"][field] = value, &at, message);
    }
    let named = json!({
        "name": "app", "command": ["/bin/true"], "ports": [{"name": "web", "containerPort": 80}],
        "readinessProbe": {"tcpSocket": {"port": "web"}},
    });
    let valid = decoded(|v| v["spec"]["container"] = named);
    assert_eq!(errors_of(&valid, &[]), vec![]);
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
    assert_eq!(errors_of(&decoded(valid), &[]), vec![]);
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

/// Checks the error of an app with these targets.
fn check_traffic(targets: Value, field: &str, message: &str) {
    check(|v| v["spec"]["traffic"] = targets, field, message);
}

#[test]
fn traffic_names_revisions_of_the_app_and_adds_up_to_100() {
    let latest = |percent: u32| json!({"latestRevision": true, "percent": percent});
    let pinned = |name: &str, percent: u32| json!({"revisionName": name, "percent": percent});
    let valid =
        json!([latest(90), pinned("docs-2", 10), {"revisionName": "docs-3", "tag": "next"}]);
    assert_eq!(
        errors_of(&decoded(|v| v["spec"]["traffic"] = valid), &[]),
        vec![]
    );
    check_traffic(
        json!([latest(90), pinned("docs-2", 20)]),
        "spec.traffic",
        "add up to 110: change them",
    );
    check_traffic(
        json!([latest(50), {"percent": 50}]),
        "spec.traffic[1]",
        "set latestRevision: true or revisionName",
    );
    check_traffic(
        json!([{"latestRevision": true, "revisionName": "docs-1", "percent": 100}]),
        "spec.traffic[0]",
        "remove one of them",
    );
    check_traffic(
        json!([pinned("web-1", 100)]),
        "spec.traffic[0].revisionName",
        "those are docs-1, docs-2 and so on",
    );
    let tagged = |tag: &str| json!({"revisionName": "docs-1", "tag": tag});
    check_traffic(
        json!([latest(100), tagged("a"), tagged("a")]),
        "spec.traffic[2].tag",
        "choose another one",
    );
    check_traffic(
        json!([latest(100), tagged("A_b")]),
        "spec.traffic[1].tag",
        "use lower-case letters",
    );
    let many: Vec<Value> = (0..16).map(|_| pinned("docs-1", 0)).collect();
    let many: Vec<Value> = many.into_iter().chain([latest(100)]).collect();
    check_traffic(json!(many), "spec.traffic", "has 17 targets, at most 16");
}

#[test]
fn a_gradual_rollout_has_steps_and_time() {
    let rollout = |step: u32, duration: &str| {
        let rollout = json!({"stepPercent": step, "duration": duration});
        move |v: &mut Value| v["spec"]["rollout"] = rollout
    };
    assert_eq!(errors_of(&decoded(rollout(25, "10m")), &[]), vec![]);
    for step in [0, 101] {
        check(
            rollout(step, "10m"),
            "spec.rollout.stepPercent",
            "between 1 and 100",
        );
    }
    check(rollout(10, "0s"), "spec.rollout.duration", "at least 1s");
    // 30, 60, 90 and 100 percent: four steps.
    let interval = decoded(rollout(30, "10m")).spec.rollout.unwrap().interval();
    assert_eq!(interval, std::time::Duration::from_secs(150));
    let of = decoded(|v| v["spec"]["rollout"] = json!({"duration": "100s"}));
    let interval = of.spec.rollout.map(|rollout| rollout.interval());
    assert_eq!(interval, Some(std::time::Duration::from_secs(10)));
}

#[test]
fn requests_are_sticky_by_a_header_a_cookie_or_the_clients_address() {
    let sticky = |sticky: Value| move |v: &mut Value| v["spec"]["sticky"] = sticky;
    for valid in [
        json!({"header": "X-User"}),
        json!({"cookie": "session"}),
        json!({"clientIP": {}}),
    ] {
        let app = decoded(sticky(valid.clone()));
        assert_eq!(errors_of(&app, &[]), vec![]);
        assert_eq!(serde_json::to_value(&app.spec.sticky).unwrap(), valid);
    }
    check(
        sticky(json!({"header": "X User"})),
        "spec.sticky.header",
        "not a valid name",
    );
    check(
        sticky(json!({"cookie": ""})),
        "spec.sticky.cookie",
        "not a valid name",
    );
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

#[test]
fn the_maximum_of_the_manifest_is_within_the_clusters_limit() {
    let entries = [("max-scale-limit", "5"), ("max-scale", "5")];
    let entries = entries.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let defaults = Cluster::starting_asleep(1);
    let cluster = defaults.with_entries(&entries.into()).unwrap();
    for (max, fine) in [(0, false), (1, true), (5, true), (6, false)] {
        let limited = decoded(|v| v["spec"]["scale"] = json!({"max": max}));
        let errors = app(None, &limited, &[], &cluster);
        assert_eq!(errors.is_empty(), fine, "{max}: {errors:?}");
    }
}

#[test]
fn settings_that_stay_are_not_refused_because_the_clusters_have_changed() {
    let name = "autoscaling.knative.dev/max-scale";
    let with = |max: &str, port: u16| {
        decoded(|v| {
            v["metadata"]["annotations"] = json!({name: max, "note": port.to_string()});
            v["spec"]["port"] = json!(port);
            v["spec"]["scale"] = json!({"initialScale": 0});
        })
    };
    let entries = [
        ("max-scale-limit", "5"),
        ("max-scale", "5"),
        ("allow-zero-initial-scale", "false"),
    ];
    let entries = entries.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let defaults = Cluster::starting_asleep(1);
    let cluster = defaults.with_entries(&entries.into()).unwrap();
    let errors = |old: Option<&App>, new: &App| {
        let errors = app(old, new, &[], &cluster).into_iter();
        errors.map(|error| error.field).collect::<Vec<_>>()
    };
    let (max, initial) = (
        format!("metadata.annotations.{name}"),
        "spec.scale.initialScale".to_owned(),
    );
    let old = with("6", 80);
    assert_eq!(errors(None, &old), [max.clone(), initial.clone()]);
    assert_eq!(errors(Some(&old), &with("6", 81)), [""; 0]);
    assert_eq!(errors(Some(&old), &with("7", 80)), [max, initial]);
}

#[test]
fn an_initial_scale_of_0_needs_a_cluster_that_allows_it() {
    let entries = [("allow-zero-initial-scale".to_owned(), "false".to_owned())];
    let cluster = Cluster::starting_asleep(1).with_entries(&entries.into());
    let cluster = cluster.unwrap();
    for (initial, fine) in [(0, false), (1, true)] {
        let valid = decoded(|v| v["spec"]["scale"] = json!({"initialScale": initial}));
        assert_eq!(errors_of(&valid, &[]), vec![]);
        let errors = app(None, &valid, &[], &cluster);
        assert_eq!(errors.is_empty(), fine, "{initial}: {errors:?}");
    }
}

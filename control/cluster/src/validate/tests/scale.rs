//! Scale settings, in the manifest and in annotations, alone and in a cluster with its own.

use super::*;

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

//! Settings from the cluster's configuration and a revision's annotations: refusals, aliases, and rules between values.

use std::collections::BTreeMap;

use dormouse_autoscaler::settings::{Cluster, Given, Refused};
use dormouse_autoscaler::{Metric, Settings};
use proptest::prelude::*;

/// Every key of the ConfigMap.
const CONFIG: [&str; 21] = [
    "pod-autoscaler-class",
    "enable-scale-to-zero",
    "allow-zero-initial-scale",
    "max-scale-up-rate",
    "max-scale-down-rate",
    "container-concurrency-target-percentage",
    "container-concurrency-target-default",
    "requests-per-second-target-default",
    "target-burst-capacity",
    "panic-window-percentage",
    "panic-threshold-percentage",
    "activator-capacity",
    "initial-scale",
    "min-scale",
    "max-scale",
    "max-scale-limit",
    "stable-window",
    "scale-down-delay",
    "scale-to-zero-grace-period",
    "scale-to-zero-pod-retention-period",
    "tick-interval",
];

/// Every annotation, and its alias in camel case.
const ANNOTATIONS: [(&str, Option<&str>); 15] = [
    ("class", None),
    ("metric", None),
    ("target", None),
    ("window", None),
    ("activation-scale", None),
    ("initial-scale", Some("initialScale")),
    ("min-scale", Some("minScale")),
    ("max-scale", Some("maxScale")),
    ("scale-down-delay", Some("scaleDownDelay")),
    (
        "metric-aggregation-algorithm",
        Some("metricAggregationAlgorithm"),
    ),
    (
        "target-utilization-percentage",
        Some("targetUtilizationPercentage"),
    ),
    ("target-burst-capacity", Some("targetBurstCapacity")),
    ("panic-window-percentage", Some("panicWindowPercentage")),
    (
        "panic-threshold-percentage",
        Some("panicThresholdPercentage"),
    ),
    (
        "scale-to-zero-pod-retention-period",
        Some("scaleToZeroPodRetentionPeriod"),
    ),
];

fn full(name: &str) -> String {
    format!("autoscaling.knative.dev/{name}")
}

fn map<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn config<const N: usize>(entries: [(&str, &str); N]) -> Result<Cluster, Refused> {
    Cluster::default().with_entries(&map(entries))
}

fn revision<const N: usize>(
    cluster: &Cluster,
    annotations: [(&str, &str); N],
) -> Result<Settings, Refused> {
    let annotations = annotations
        .iter()
        .map(|(name, value)| (full(name), (*value).to_owned()))
        .collect();
    settings(cluster, &annotations, 0, true)
}

/// The settings of a revision, as Knative has them: one fault refuses all annotations.
fn settings(
    cluster: &Cluster,
    annotations: &BTreeMap<String, String>,
    limit: u32,
    reachable: bool,
) -> Result<Settings, Refused> {
    let (given, faults) = cluster.admitted(annotations);
    if !faults.is_empty() {
        return Err(Refused { faults });
    }
    Ok(cluster.settings(&given, limit, reachable))
}

fn keys<T: std::fmt::Debug>(result: Result<T, Refused>) -> Vec<String> {
    let Err(refused) = result else {
        panic!("accepted: {result:?}");
    };
    refused.faults.into_iter().map(|fault| fault.key).collect()
}

/// Values near to valid ones, and arbitrary ones.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[-+]?[0-9]{0,11}(\\.[0-9]{1,3})?(e[0-9]{1,3}|ms|s|m|h)?",
        prop::sample::select(vec![
            "true", "False", "NaN", "-Inf", "1e999", "0x1p3", "rps", "cpu", "linear", "",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

/// Each fault names a key that was given, or a default that a key which was given makes invalid.
fn names_its_keys(
    refused: &Refused,
    given: &BTreeMap<String, String>,
) -> Result<(), TestCaseError> {
    prop_assert!(!refused.faults.is_empty());
    for fault in &refused.faults {
        let cause = match fault.key.as_str() {
            "max-scale" => "max-scale-limit",
            "container-concurrency-target-default" => "container-concurrency-target-percentage",
            key => key,
        };
        let known = given.contains_key(&fault.key) || given.contains_key(cause);
        prop_assert!(known, "{}", fault);
        prop_assert!(refused.to_string().contains(&fault.key));
        prop_assert!(!fault.allowed.is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_entry_of_the_config_panics_and_a_refusal_names_its_key(
        given in prop::collection::btree_map(
            prop::sample::select(CONFIG.to_vec()).prop_map(str::to_owned), value(), 0..6),
        annotations in prop::collection::btree_map(annotation(), value(), 0..6),
        limit in 0_u32..3,
        reachable: bool,
    ) {
        match Cluster::default().with_entries(&given) {
            Err(refused) => names_its_keys(&refused, &given)?,
            Ok(cluster) => sound(&cluster, (&given, &annotations), limit, reachable)?,
        }
    }

    #[test]
    fn no_annotation_panics_and_a_refusal_names_its_key(
        annotations in prop::collection::btree_map(annotation(), value(), 0..3),
        limit in 0_u32..3,
        reachable: bool,
    ) {
        sound(&Cluster::default(), (&BTreeMap::new(), &annotations), limit, reachable)?;
    }
}

fn annotation() -> impl Strategy<Value = String> {
    (prop::sample::select(ANNOTATIONS.to_vec()), any::<bool>())
        .prop_map(|((name, alias), other)| full(alias.filter(|_| other).unwrap_or(name)))
}

/// A refusal names its keys; accepted settings decide.
fn sound(
    cluster: &Cluster,
    (given, annotations): (&BTreeMap<String, String>, &BTreeMap<String, String>),
    limit: u32,
    reachable: bool,
) -> Result<(), TestCaseError> {
    match settings(cluster, annotations, limit, reachable) {
        // An annotation's fault, or the class that the cluster has as default.
        Err(refused) => {
            let class = given.get_key_value("pod-autoscaler-class");
            let class = class.map(|(key, value)| (key.clone(), value.clone()));
            let given = annotations.clone().into_iter().chain(class).collect();
            names_its_keys(&refused, &given)
        }
        Ok(settings) => {
            prop_assert!(settings.target_value() >= 0.01);
            prop_assert!((1..=settings.stable_window_s).contains(&settings.panic_window_s()));
            prop_assert!(settings.max_scale_up_rate > 1.0 && settings.max_scale_down_rate > 1.0);
            prop_assert!(settings.floor() >= 0 && settings.retention_ms() >= 0);
            Ok(())
        }
    }
}

#[test]
fn without_entries_and_annotations_the_defaults_are_knatives() {
    let cluster = config([("tick-interval", "x"), ("_example", "y")]).unwrap();
    assert_eq!(cluster, Cluster::default());
    let settings = revision(&cluster, []).unwrap();
    let expected = Settings {
        target: Some(100.0),
        ..Settings::default()
    };
    assert_eq!(settings, expected);
}

#[test]
fn every_invalid_entry_is_reported() {
    // A class is any text; the last key is unknown.
    let parsed = &CONFIG[1..CONFIG.len() - 1];
    for key in parsed {
        assert_eq!(keys(config([(*key, " ")])), [*key]);
    }
    let mut found = keys(config(CONFIG.map(|key| (key, " "))));
    found.sort();
    let mut expected = parsed.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn every_invalid_annotation_is_reported_under_the_name_that_was_given() {
    let cluster = Cluster::default();
    for (name, alias) in ANNOTATIONS {
        for name in [Some(name), alias].into_iter().flatten() {
            assert_eq!(keys(revision(&cluster, [(name, "?")])), [full(name)]);
        }
    }
    let refused = revision(&cluster, [("minScale", "-1"), ("window", "5s")]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "autoscaling.knative.dev/minScale: \"-1\" is not valid: must be an integer from 0 to 2147483647; \
         autoscaling.knative.dev/window: \"5s\" is not valid: must be a duration from 6s to 1h in whole seconds"
    );
}

#[test]
fn a_key_wins_over_its_alias() {
    let annotations = [("min-scale", "2"), ("minScale", "x"), ("maxScale", "5")];
    let settings = revision(&Cluster::default(), annotations).unwrap();
    assert_eq!((settings.min_scale, settings.max_scale), (2, 5));
}

#[test]
fn what_is_refused_gives_nothing_and_the_rest_counts() {
    let cluster = config([("max-scale-limit", "9"), ("max-scale", "9")]).unwrap();
    let given = |annotations: [(&str, &str); 4]| {
        let annotations = annotations.map(|(name, value)| (full(name), value.to_owned()));
        let (given, faults) = cluster.annotated(&annotations.into());
        (given, faults.len())
    };
    let (bad, faults) = given([
        ("min-scale", "-1"),
        ("initialScale", "0"),
        ("max-scale", "10"),
        ("window", "30s"),
    ]);
    // The limit counts when an object is written.
    let expected = Given {
        stable_window_s: Some(30),
        max_scale: Some(10),
        ..Given::default()
    };
    assert_eq!((bad, faults), (expected, 2));
    let (crossed, faults) = given([
        ("min-scale", "4"),
        ("max-scale", "3"),
        ("activation-scale", "2"),
        ("metric", "rps"),
    ]);
    let expected = Given {
        min_scale: Some(4),
        metric: Some(Metric::Rps),
        ..Given::default()
    };
    assert_eq!((crossed, faults), (expected, 2));
}

#[test]
fn dormouses_defaults_are_knatives_but_an_app_starts_asleep() {
    let cluster = Cluster::starting_asleep(7_000);
    let (settings, knative) = (revision(&cluster, []), revision(&Cluster::default(), []));
    let expected = Settings {
        initial_scale: 0,
        scale_to_zero_grace_ms: 7_000,
        ..knative.unwrap()
    };
    assert_eq!(settings, Ok(expected));
    let zero = revision(&cluster, [("initial-scale", "0")]).unwrap();
    assert_eq!(zero.initial_scale, 0);
    let one = revision(&cluster, [("initial-scale", "1")]).unwrap();
    assert_eq!(one.initial_scale, 1);
    let configured = |entries| cluster.clone().with_entries(&map(entries)).unwrap();
    let grace = configured([("scale-to-zero-grace-period", "9s")]);
    let grace = revision(&grace, []).unwrap();
    assert_eq!(
        (grace.scale_to_zero_grace_ms, grace.initial_scale),
        (9_000, 0)
    );
    // Zero is not allowed, so the default is not zero.
    let started = configured([("allow-zero-initial-scale", "false")]);
    assert_eq!(revision(&started, []).unwrap().initial_scale, 1);
}

#[test]
fn scales_of_the_config_limit_each_other() {
    assert!(config([("max-scale-limit", "11"), ("max-scale", "11")]).is_ok());
    assert_eq!(keys(config([("max-scale-limit", "11")])), ["max-scale"]);
    assert_eq!(
        keys(config([("max-scale", "10"), ("max-scale-limit", "9")])),
        ["max-scale"]
    );
    assert_eq!(
        keys(config([("min-scale", "4"), ("max-scale", "3")])),
        ["min-scale"]
    );
    assert!(config([("min-scale", "4")]).is_ok());
    assert_eq!(keys(config([("initial-scale", "0")])), ["initial-scale"]);
    let zero = [("initial-scale", "0"), ("allow-zero-initial-scale", "T")];
    assert!(config(zero).is_ok());
    let tiny = [
        ("container-concurrency-target-percentage", "1"),
        ("container-concurrency-target-default", "0.001"),
    ];
    assert_eq!(keys(config(tiny)), ["container-concurrency-target-default"]);
}

#[test]
fn scales_of_a_revision_limit_each_other() {
    let limited = config([
        ("max-scale-limit", "9"),
        ("max-scale", "9"),
        ("min-scale", "4"),
    ])
    .unwrap();
    assert_eq!(
        keys(revision(&limited, [("max-scale", "10")])),
        [full("max-scale")]
    );
    assert_eq!(
        keys(revision(&limited, [("maxScale", "0")])),
        [full("maxScale")]
    );
    // The cluster's minimum does not count.
    assert!(revision(&limited, [("max-scale", "3")]).is_ok());
    let cluster = Cluster::default();
    let crossed = [("min-scale", "4"), ("max-scale", "3")];
    assert_eq!(keys(revision(&cluster, crossed)), [full("max-scale")]);
    for other in [
        ("min-scale", "3"),
        ("max-scale", "1"),
        ("activation-scale", "1"),
    ] {
        let result = revision(&cluster, [("activation-scale", "2"), other]);
        assert_eq!(keys(result), [full("activation-scale")], "{other:?}");
    }
    assert!(revision(&cluster, [("activation-scale", "2"), ("max-scale", "0")]).is_ok());
}

#[test]
fn an_initial_scale_beyond_32_bits_is_the_clusters() {
    let cluster = config([("initial-scale", "3")]).unwrap();
    let settings = revision(&cluster, [("initial-scale", "4294967297")]).unwrap();
    assert_eq!(settings.initial_scale, 3);
    let beyond = [("initial-scale", "9223372036854775808")];
    assert_eq!(keys(revision(&cluster, beyond)), [full("initial-scale")]);
    assert_eq!(
        keys(revision(&cluster, [("initial-scale", "0")])),
        [full("initial-scale")]
    );
}

#[test]
fn the_utilization_of_concurrency_is_a_fraction_up_to_1_and_does_not_hold_for_rps() {
    let utilization = |percentage| {
        let cluster = config([("container-concurrency-target-percentage", percentage)]);
        cluster.and_then(|cluster| {
            let concurrency = revision(&cluster, [])?.target_utilization;
            let rps = revision(&cluster, [("metric", "rps")])?.target_utilization;
            Ok((concurrency, rps))
        })
    };
    assert_eq!(utilization("1"), Ok((1.0, 0.7)));
    assert_eq!(utilization("0.5"), Ok((0.5, 0.7)));
    assert_eq!(utilization("55"), Ok((0.55, 0.7)));
    assert!(utilization("100.5").is_err());
    assert!(utilization("0").is_err());
}

#[test]
fn a_class_without_an_autoscaler_is_refused() {
    let hpa = "hpa.autoscaling.knative.dev";
    let cluster = config([("pod-autoscaler-class", hpa)]).unwrap();
    assert_eq!(keys(revision(&cluster, [])), ["pod-autoscaler-class"]);
    let kpa = [("class", "kpa.autoscaling.knative.dev")];
    assert!(revision(&cluster, kpa).is_ok());
    let cluster = config([("pod-autoscaler-class", " kpa.autoscaling.knative.dev ")]).unwrap();
    assert!(revision(&cluster, []).is_ok());
    assert_eq!(keys(revision(&cluster, [("class", hpa)])), [full("class")]);
}

#[test]
fn a_progress_deadline_is_in_whole_seconds() {
    let deadline = |value: &str| {
        let annotations = map([("serving.knative.dev/progress-deadline", value)]);
        let settings = settings(&Cluster::default(), &annotations, 0, true);
        settings.map(|settings| settings.progress_deadline_ms)
    };
    assert_eq!(deadline("1m"), Ok(60_000));
    assert_eq!(deadline(""), Ok(600_000));
    assert!(deadline("1500ms").is_err());
    assert!(deadline("-1s").is_err());
}

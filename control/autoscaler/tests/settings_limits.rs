//! The limits of every value of the cluster's configuration and of the annotations: what is just valid, and just not.

use std::collections::BTreeMap;

use dormouse_autoscaler::settings::Cluster;

/// A key with values at its limits: valid ones, and ones that are refused.
type Limits = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const CONFIG: [Limits; 20] = [
    ("pod-autoscaler-class", &["", "any"], &[]),
    (
        "enable-scale-to-zero",
        &["1", "t", "TRUE", "False", "f", "0"],
        &["tRUE", "yes", "", " true", "2"],
    ),
    ("allow-zero-initial-scale", &["T", "F"], &["on"]),
    (
        "max-scale-up-rate",
        &["1.001", "Inf"],
        &["1", "1.0", "NaN", "x"],
    ),
    ("max-scale-down-rate", &["1.001"], &["1", "-55", "0x1p0"]),
    (
        "container-concurrency-target-percentage",
        &["0.001", "1", "1.001", "100", "0x64p0", "1_00"],
        &["0", "-42", "100.001", "70%", ""],
    ),
    (
        "container-concurrency-target-default",
        &["0.015", "1e308"],
        &["0.014", "0", "-100", "1e309"],
    ),
    (
        "requests-per-second-target-default",
        &["0.01"],
        &["0.00999", "-5.25"],
    ),
    (
        "target-burst-capacity",
        &["-1", "-1.0", "0", "-0", "0.5", "12345"],
        &["-0.5", "-1.001", "-11", "-Inf"],
    ),
    (
        "panic-window-percentage",
        &["1", "100"],
        &["0.999", "100.001"],
    ),
    ("panic-threshold-percentage", &["1", "5000", "-1"], &["two"]),
    ("activator-capacity", &["1", "905"], &["0.999", "0"]),
    (
        "initial-scale",
        &["1", "+1", "01", "2147483647"],
        &["0", "-1", "1.0", "1_0", "0x1", "2147483648", " 1", ""],
    ),
    ("min-scale", &["0", "-0", "4"], &["-1", "1e3"]),
    ("max-scale", &["0", "1"], &["-1"]),
    ("max-scale-limit", &["0"], &["-9", "1"]),
    (
        "stable-window",
        &["6s", "1h", "0.1h", "5m", "59m60s", "6000ms"],
        &["5s", "5999ms", "1h1s", "61984ms", "60", "0", "-60s"],
    ),
    (
        "scale-down-delay",
        &["0", "0s", "-0s", "15m", "48h", "1000ms"],
        &["-1s", "1500ms", "1"],
    ),
    (
        "scale-to-zero-grace-period",
        &["1ns", "500ms", "2400h"],
        &["0", "0s", "-1s", "30"],
    ),
    (
        "scale-to-zero-pod-retention-period",
        &["0", "1ns", "48h"],
        &["-1ns", "-4m11s", ""],
    ),
];

const ANNOTATIONS: [Limits; 15] = [
    (
        "class",
        &["kpa.autoscaling.knative.dev"],
        &["", "kpa", "x.knative.dev"],
    ),
    (
        "metric",
        &["concurrency", "rps"],
        &["", "cpu", "memory", "RPS"],
    ),
    (
        "target",
        &["0.01", "1e3", "Inf"],
        &["0.00999", "0", "-1", "", "NaN"],
    ),
    (
        "window",
        &["6s", "1h", "60000ms"],
        &["5s", "5.999s", "6.5s", "1h1ns", "1h1s", "", "60"],
    ),
    (
        "activation-scale",
        &["2", "2147483647"],
        &["1", "0", "-2", "2.0", "2147483648"],
    ),
    (
        "initial-scale",
        &["1", "9223372036854775807"],
        &["0", "-1", "9223372036854775808", ""],
    ),
    (
        "min-scale",
        &["0", "2147483647"],
        &["-1", "2147483648", "1.5", ""],
    ),
    (
        "max-scale",
        &["0", "2147483647"],
        &["-1", "2147483648", "none"],
    ),
    (
        "scale-down-delay",
        &["0", "1h"],
        &["-1s", "1h1s", "1500ms", ""],
    ),
    (
        "metric-aggregation-algorithm",
        &["", "linear", "weighted-exponential", "weightedExponential"],
        &["Linear", "weighted"],
    ),
    (
        "target-utilization-percentage",
        &["1", "100"],
        &["0.999", "100.001", "70%"],
    ),
    (
        "target-burst-capacity",
        &["-1", "0", "70.5"],
        &["-0.5", "-2", ""],
    ),
    (
        "panic-window-percentage",
        &["1", "100"],
        &["0.999", "100.001", ""],
    ),
    (
        "panic-threshold-percentage",
        &["110", "1000"],
        &["109.999", "1000.001"],
    ),
    (
        "scale-to-zero-pod-retention-period",
        &["0", "1ns", "1h"],
        &["-1ns", "1h1ns", ""],
    ),
];

fn one(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn values_of_the_config_have_knatives_limits() {
    for (key, valid, refused) in CONFIG {
        for value in valid {
            let result = Cluster::default().with_entries(&one(key, value));
            assert!(result.is_ok(), "{key}: {value:?}: {result:?}");
        }
        for value in refused {
            let result = Cluster::default().with_entries(&one(key, value));
            assert!(result.is_err(), "{key}: {value:?}: {result:?}");
        }
    }
}

#[test]
fn annotations_have_knatives_limits() {
    let accepts = |name: &str, value: &str| {
        let annotations = one(&format!("autoscaling.knative.dev/{name}"), value);
        Cluster::default().admitted(&annotations).1.is_empty()
    };
    for (name, valid, refused) in ANNOTATIONS {
        for value in valid {
            assert!(accepts(name, value), "{name}: {value:?} is refused");
        }
        for value in refused {
            assert!(!accepts(name, value), "{name}: {value:?} is accepted");
        }
    }
}

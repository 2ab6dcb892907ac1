//! The settings of an app that are not the defaults, each with its source, for people.

use std::collections::BTreeMap;
use std::fmt;

use dormouse_autoscaler::settings::{Cluster, Given};
use dormouse_autoscaler::{Aggregation, Metric, Settings};

use super::App;

/// A setting that is not the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Its name: that of the field in the manifest, else the annotation's or the ConfigMap's key.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where the value is from.
    pub source: Source,
}

/// The source of a value, in the order in which they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The field of the manifest, with its path.
    Manifest(&'static str),
    /// Knative's annotation.
    Annotation(&'static str),
    /// The key of the ConfigMap `config-autoscaler`.
    ConfigMap(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(path) => f.write_str(path),
            Self::Annotation(name) => write!(f, "annotation {name}"),
            Self::ConfigMap(key) => write!(f, "ConfigMap config-autoscaler, {key}"),
        }
    }
}

/// The names of one setting; empty where a source has none.
struct Row {
    field: &'static str,
    path: &'static str,
    annotation: &'static str,
    key: &'static str,
    is_given: fn(&Given) -> bool,
    value: fn(&Settings) -> String,
}

impl Row {
    /// The ConfigMap's key.
    fn key_for(&self, metric: Metric) -> &'static str {
        match (metric, self.field) {
            (Metric::Rps, "target") => "requests-per-second-target-default",
            _ => self.key,
        }
    }
}

macro_rules! row {
    ($field:literal, $annotation:literal, $key:literal, $given:ident, $value:expr) => {
        row!(
            $field,
            concat!("spec.scale.", $field),
            $annotation,
            $key,
            $given,
            $value
        )
    };
    ($field:literal, $path:expr, $annotation:literal, $key:literal, $given:ident, $value:expr) => {
        Row {
            field: $field,
            path: $path,
            annotation: $annotation,
            key: $key,
            is_given: |given| given.$given.is_some(),
            value: $value,
        }
    };
}

/// A setting that only the ConfigMap has.
macro_rules! cluster_row {
    ($key:literal, $value:expr) => {
        Row {
            field: "",
            path: "",
            annotation: "",
            key: $key,
            is_given: |_| false,
            value: $value,
        }
    };
}

#[rustfmt::skip]
const ROWS: [Row; 21] = [
    row!("min", "min-scale", "min-scale", min_scale, |s| s.min_scale.to_string()),
    row!("max", "max-scale", "max-scale", max_scale, |s| s.max_scale.to_string()),
    row!("initialScale", "initial-scale", "initial-scale", initial_scale, |s| s.initial_scale.to_string()),
    row!("activationScale", "activation-scale", "", activation_scale, |s| s.activation_scale.max(1).to_string()),
    row!("metric", "metric", "", metric, |s| metric(s.metric)),
    row!("target", "target", "container-concurrency-target-default", target, |s| s.total_value().to_string()),
    row!("targetUtilization", "target-utilization-percentage", "container-concurrency-target-percentage", target_utilization, |s| s.target_utilization.to_string()),
    row!("window", "window", "stable-window", stable_window_s, |s| seconds(s.stable_window_s)),
    row!("panicWindowPercentage", "panic-window-percentage", "panic-window-percentage", panic_window_percentage, |s| s.panic_window_percentage.to_string()),
    row!("panicThresholdPercentage", "panic-threshold-percentage", "panic-threshold-percentage", panic_threshold_percentage, |s| s.panic_threshold_percentage.to_string()),
    row!("targetBurstCapacity", "target-burst-capacity", "target-burst-capacity", target_burst_capacity, |s| s.target_burst_capacity.to_string()),
    row!("scaleDownDelay", "scale-down-delay", "scale-down-delay", scale_down_delay_s, |s| seconds(s.scale_down_delay_s)),
    row!("scaleToZeroRetention", "scale-to-zero-pod-retention-period", "scale-to-zero-pod-retention-period", pod_retention_ms, |s| milliseconds(s.pod_retention_ms)),
    row!("maxScaleUpRate", "", "max-scale-up-rate", max_scale_up_rate, |s| s.max_scale_up_rate.to_string()),
    row!("maxScaleDownRate", "", "max-scale-down-rate", max_scale_down_rate, |s| s.max_scale_down_rate.to_string()),
    row!("serveHysteresis", "", "", hysteresis, |s| s.damping.hysteresis.to_string()),
    row!("proxyDwell", "", "", dwell_ms, |s| milliseconds(s.damping.dwell_ms)),
    row!("", "metric-aggregation-algorithm", "", aggregation, |s| aggregation(s.aggregation)),
    row!("progressDeadlineSeconds", "spec.progressDeadlineSeconds", "serving.knative.dev/progress-deadline", "", progress_deadline_ms, |s| milliseconds(s.progress_deadline_ms)),
    cluster_row!("scale-to-zero-grace-period", |s| milliseconds(s.scale_to_zero_grace_ms)),
    cluster_row!("enable-scale-to-zero", |s| s.enable_scale_to_zero.to_string()),
];

impl App {
    /// The settings that are not those of an app that sets nothing in a cluster that sets nothing (`defaults`), with their sources.
    pub fn explained_settings(&self, cluster: &Cluster, defaults: &Cluster) -> Vec<Explained> {
        let none = BTreeMap::new();
        let annotations = self.metadata.annotations.as_ref().unwrap_or(&none);
        let (annotated, _) = cluster.annotated(annotations);
        let manifest = self.given();
        let limit = self.spec.scale.container_concurrency;
        let settings = self.autoscaling(cluster).settings;
        let silent = |metric| {
            let given = Given {
                metric,
                ..Given::default()
            };
            defaults.settings(&given, limit, true)
        };
        // The defaults of other settings depend on the metric.
        let (plain, counted) = (silent(None), silent(Some(settings.metric)));
        let given = Given {
            metric: Some(settings.metric),
            ..Given::default()
        };
        let of_cluster = cluster.settings(&given, limit, true);
        let explained = |row: &Row| {
            let value = (row.value)(&settings);
            let is_given = (row.is_given)(&manifest) || (row.is_given)(&annotated);
            let overrides = is_given && value != (row.value)(&of_cluster);
            let default = (row.value)(if row.field == "metric" {
                &plain
            } else {
                &counted
            });
            let source = if (row.is_given)(&manifest) {
                Source::Manifest(row.path)
            } else if (row.is_given)(&annotated) {
                Source::Annotation(row.annotation)
            } else {
                Source::ConfigMap(row.key_for(settings.metric))
            };
            let names = [row.field, row.annotation, row.key];
            let name = names.into_iter().find(|name| !name.is_empty())?;
            (value != default || overrides).then_some(Explained {
                name,
                value,
                source,
            })
        };
        ROWS.iter().filter_map(explained).collect()
    }
}

fn seconds(seconds: u32) -> String {
    format!("{seconds}s")
}

fn milliseconds(ms: i64) -> String {
    if ms % 1_000 == 0 {
        format!("{}s", ms / 1_000)
    } else {
        format!("{ms}ms")
    }
}

fn metric(metric: Metric) -> String {
    match metric {
        Metric::Concurrency => "concurrency".to_owned(),
        Metric::Rps => "rps".to_owned(),
    }
}

fn aggregation(aggregation: Aggregation) -> String {
    match aggregation {
        Aggregation::Linear => "linear".to_owned(),
        Aggregation::WeightedExponential => "weighted-exponential".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(app: &App, cluster: &Cluster) -> Vec<String> {
        let defaults = Cluster::starting_asleep(30_000);
        let all = app.explained_settings(cluster, &defaults).into_iter();
        all.map(|one| format!("{} {} ({})", one.name, one.value, one.source))
            .collect()
    }

    #[test]
    fn each_setting_that_is_not_the_default_has_its_source() {
        let config = [
            ("stable-window", "40s"),
            ("scale-down-delay", "9s"),
            ("min-scale", "2"),
            ("enable-scale-to-zero", "false"),
        ];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let defaults = Cluster::starting_asleep(30_000);
        let cluster = defaults.clone().with_entries(&config.into()).unwrap();
        let app: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "annotations": {
                "autoscaling.knative.dev/maxScale": "7", "autoscaling.knative.dev/min-scale": "3",
                "autoscaling.knative.dev/activation-scale": "4",
                "autoscaling.knative.dev/scale-down-delay": "0s",
            }},
            "spec": {"container": {"name": "app"}, "scale": {"min": 1, "target": 100, "proxyDwell": "1500ms"}},
        }))
        .unwrap();
        assert_eq!(
            lines(&app, &cluster),
            [
                "min 1 (spec.scale.min)",
                "max 7 (annotation max-scale)",
                "activationScale 4 (annotation activation-scale)",
                "window 40s (ConfigMap config-autoscaler, stable-window)",
                "scaleDownDelay 0s (annotation scale-down-delay)",
                "proxyDwell 1500ms (spec.scale.proxyDwell)",
                "enable-scale-to-zero false (ConfigMap config-autoscaler, enable-scale-to-zero)",
            ]
        );
        let rps: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web"}, "spec": {"container": {"name": "app"}, "scale": {"metric": "rps"}},
        }))
        .unwrap();
        assert_eq!(lines(&rps, &defaults), ["metric rps (spec.scale.metric)"]);
        let slow: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "annotations": {"serving.knative.dev/progress-deadline": "1200s"}},
            "spec": {"container": {"name": "app"}, "progressDeadlineSeconds": 60},
        }))
        .unwrap();
        assert_eq!(
            lines(&slow, &defaults),
            ["progressDeadlineSeconds 60s (spec.progressDeadlineSeconds)"]
        );
        let silent = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web"}, "spec": {"container": {"name": "app"}},
        }));
        assert_eq!(lines(&silent.unwrap(), &defaults), [""; 0]);
    }

    #[test]
    fn every_name_is_in_the_documentation() {
        let text = include_str!("../../../../docs/SETTINGS.md");
        for row in &ROWS {
            for name in [row.field, row.annotation, row.key] {
                let is_there = text.contains(&format!("`{name}`"));
                assert!(
                    name.is_empty() || is_there,
                    "{name} is not in docs/SETTINGS.md"
                );
            }
        }
    }
}

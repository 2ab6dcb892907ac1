//! The autoscaler's settings of an app: those of its manifest (`spec.scale`), then those of its annotations, then the cluster's.

use std::collections::BTreeMap;

use dormouse_autoscaler::Settings;
use dormouse_autoscaler::settings::{Cluster, Fault, Given, is_annotation};

use super::{App, PROGRESS_DEADLINE_DEFAULT_S};

/// The settings in force of an app.
#[derive(Debug, Clone, PartialEq)]
pub struct Autoscaling {
    /// The values in force.
    pub settings: Settings,
    /// The annotations that are ignored, as they are not valid. The API refuses them.
    pub ignored: Vec<Fault>,
}

impl App {
    /// The settings in force.
    pub fn autoscaling(&self, cluster: &Cluster) -> Autoscaling {
        let none = BTreeMap::new();
        let annotations = self.metadata.annotations.as_ref().unwrap_or(&none);
        let (annotated, ignored) = cluster.annotated(annotations);
        let given = self.given().or(annotated);
        let limit = self.spec.scale.container_concurrency;
        let settings = cluster.settings(&given, limit, true);
        Autoscaling { settings, ignored }
    }

    /// The values that the manifest sets.
    pub(super) fn given(&self) -> Given {
        let deadline = i64::from(self.spec.progress_deadline_seconds) * 1_000;
        let is_set = self.spec.progress_deadline_seconds != PROGRESS_DEADLINE_DEFAULT_S;
        Given {
            progress_deadline_ms: is_set.then_some(deadline),
            ..self.spec.scale.given()
        }
    }

    /// The annotations that are settings.
    pub fn settings_annotations(&self) -> impl Iterator<Item = (&String, &String)> {
        let annotations = self.metadata.annotations.iter().flatten();
        annotations.filter(|(name, _)| is_annotation(name))
    }

    /// Whether another state of the app has the same manifest and the same settings.
    pub fn is_configured_as(&self, other: &Self) -> bool {
        self.spec == other.spec && self.is_scaled_as(other)
    }

    /// Whether another state of the app sets the same scale settings.
    pub(crate) fn is_scaled_as(&self, other: &Self) -> bool {
        self.spec.scale == other.spec.scale
            && self.settings_annotations().eq(other.settings_annotations())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn app(scale: &Value, annotations: &Value) -> App {
        serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"container": {"name": "app"}, "scale": scale},
        }))
        .unwrap()
    }

    fn annotation(name: &str) -> String {
        format!("autoscaling.knative.dev/{name}")
    }

    #[test]
    fn a_field_of_the_manifest_wins_over_the_annotation_and_that_over_the_default() {
        let cluster = Cluster::starting_asleep(30_000);
        let annotations = json!({
            annotation("min-scale"): "1", annotation("maxScale"): "7", annotation("window"): "30s", "note": "x",
        });
        let app = app(&json!({"min": 2, "window": "20s"}), &annotations);
        let Autoscaling { settings, ignored } = app.autoscaling(&cluster);
        assert_eq!((settings.min_scale, settings.max_scale), (2, 7));
        assert_eq!(settings.stable_window_s, 20);
        assert_eq!((settings.initial_scale, settings.activation_scale), (0, 0));
        assert_eq!(ignored, []);
    }

    #[test]
    fn the_progress_deadline_is_that_of_the_manifest_then_of_the_annotation() {
        let cluster = Cluster::starting_asleep(30_000);
        let annotated = json!({"serving.knative.dev/progress-deadline": "1200s"});
        let mut app = app(&json!({}), &annotated);
        let deadline_ms = |app: &App| app.autoscaling(&cluster).settings.progress_deadline_ms;
        assert_eq!(deadline_ms(&app), 1_200_000);
        app.spec.progress_deadline_seconds = 60;
        assert_eq!(deadline_ms(&app), 60_000);
    }

    #[test]
    fn the_metric_of_the_manifest_decides_about_the_default_target() {
        let cluster = Cluster::starting_asleep(30_000);
        let rps = json!({annotation("metric"): "rps"});
        let target = |app: &App| app.autoscaling(&cluster).settings.target_value();
        let (annotated, both) = (
            app(&json!({}), &rps),
            app(&json!({"metric": "concurrency"}), &rps),
        );
        assert!((target(&annotated) - 140.0).abs() < 1e-9);
        assert!((target(&both) - 70.0).abs() < 1e-9);
    }

    #[test]
    fn a_bad_annotation_is_ignored_and_named() {
        let cluster = Cluster::starting_asleep(30_000);
        let annotations = json!({annotation("min-scale"): "-1", annotation("max-scale"): "3"});
        let Autoscaling { settings, ignored } = app(&json!({}), &annotations).autoscaling(&cluster);
        assert_eq!((settings.min_scale, settings.max_scale), (0, 3));
        let keys: Vec<_> = ignored.into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, [annotation("min-scale")]);
    }

    #[test]
    fn only_annotations_that_are_settings_configure_an_app() {
        let plain = app(&json!({}), &json!({}));
        let noted = app(&json!({}), &json!({"note": "x"}));
        let scaled = app(&json!({}), &json!({annotation("min-scale"): "1"}));
        assert!(plain.is_configured_as(&noted));
        assert!(!plain.is_configured_as(&scaled));
        assert!(!plain.is_configured_as(&app(&json!({"min": 1}), &json!({}))));
    }
}

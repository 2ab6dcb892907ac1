//! The autoscaling settings in an app's manifest: Knative's settings, with their meaning.

use dormouse_autoscaler::settings::Given;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Period;

/// Autoscaling settings. One that is not set is that of the app's annotation of Knative's group `autoscaling.knative.dev`, else that
/// of the ConfigMap `config-autoscaler`, else the
/// default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    /// Minimum number of pods. Annotation `min-scale`; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Maximum number of pods; 0 is no limit. Annotation `max-scale`; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Requests in flight that a pod accepts; 0 is no limit. The activator enforces the limit, so it stays in the
    /// path: `target` alone lets it leave.
    pub container_concurrency: u32,
    /// The metric of `target`. Annotation `metric`; default concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Target value of the metric per pod. Annotation `target`; default for concurrency: `containerConcurrency`, or 100 if
    /// that has no limit; default for rps: 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Fraction of the target at which the autoscaler aims, 0 to 1. Annotation `target-utilization-percentage`, in percent; default 0.7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// Length of the stable window. Annotation `window`; default 60s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// Length of the panic window, in percent of the stable window. Annotation `panic-window-percentage`; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panic_window_percentage: Option<f64>,
    /// Pods that the panic window asks for, in percent of the ready pods, at which panic mode begins. Annotation
    /// `panic-threshold-percentage`; default 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panic_threshold_percentage: Option<f64>,
    /// Requests of a burst that the ready pods must have capacity for before the activator leaves the
    /// path. 0: it leaves as soon as a pod is ready; -1: it never leaves. Annotation `target-burst-capacity`; default 211.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_burst_capacity: Option<f64>,
    /// Maximum factor by which one decision increases the number of pods. Default 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_scale_up_rate: Option<f64>,
    /// Maximum factor by which one decision decreases the number of pods. Default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_scale_down_rate: Option<f64>,
    /// Time for which fewer pods must be enough before the number of pods is reduced. Annotation `scale-down-delay`; default 0s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_delay: Option<Period>,
    /// Minimum time for which the last pod is retained after the decision to scale to zero. Annotation
    /// `scale-to-zero-pod-retention-period`; default 0s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_to_zero_retention: Option<Period>,
    /// Minimum number of pods when the app scales from zero. Annotation `activation-scale`; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_scale: Option<u32>,
    /// The activator leaves the path (mode serve) only when the excess burst capacity was at least a tenth of `targetBurstCapacity`, and
    /// at least 1, in two decisions in a row. Default false: when it is not below 0, as in Knative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve_hysteresis: Option<bool>,
    /// Minimum time for which the activator stays in the path (mode proxy) after it has entered it. Default 0s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_dwell: Option<Period>,
    /// Number of pods when the app is created. Annotation `initial-scale`; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_scale: Option<u32>,
}

/// The metric of `target`. Annotation `metric`; default concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Requests in flight.
    #[default]
    Concurrency,
    /// Requests per second.
    Rps,
}

impl Scale {
    /// The values that are set.
    pub fn given(&self) -> Given {
        use dormouse_autoscaler::Metric as Counted;
        Given {
            metric: self.metric.map(|metric| match metric {
                Metric::Concurrency => Counted::Concurrency,
                Metric::Rps => Counted::Rps,
            }),
            target: self.target,
            target_utilization: self.target_utilization,
            // The simulations' windows are shorter than a manifest may have.
            stable_window_s: seconds(self.window.as_ref()).map(|window| window.max(1)),
            panic_window_percentage: self.panic_window_percentage,
            panic_threshold_percentage: self.panic_threshold_percentage,
            max_scale_up_rate: self.max_scale_up_rate,
            max_scale_down_rate: self.max_scale_down_rate,
            scale_down_delay_s: seconds(self.scale_down_delay.as_ref()),
            activation_scale: self.activation_scale.map(count),
            initial_scale: self.initial_scale.map(count),
            min_scale: self.min.map(count),
            max_scale: self.max.map(count),
            target_burst_capacity: self.target_burst_capacity,
            pod_retention_ms: self.scale_to_zero_retention.as_ref().map(milliseconds),
            hysteresis: self.serve_hysteresis,
            dwell_ms: self.proxy_dwell.as_ref().map(milliseconds),
            aggregation: None,
            progress_deadline_ms: None,
        }
    }
}

/// Decodes the settings. An earlier version wrote all of its fields, those that were not set with their defaults: such a default counts
/// as not set, so that annotations and the ConfigMap do.
pub(super) fn scale_of_any_version<'de, D: Deserializer<'de>>(from: D) -> Result<Scale, D::Error> {
    let scale = Scale::deserialize(from)?;
    Ok(if scale.is_of_earlier_version() {
        scale.without_earlier_defaults()
    } else {
        scale
    })
}

impl Scale {
    /// Whether all fields are set that an earlier version always wrote, and none that it did not have.
    fn is_of_earlier_version(&self) -> bool {
        let counts = [
            self.min,
            self.max,
            self.activation_scale,
            self.initial_scale,
        ];
        let numbers = [
            self.target_utilization,
            self.panic_window_percentage,
            self.panic_threshold_percentage,
            self.target_burst_capacity,
            self.max_scale_up_rate,
            self.max_scale_down_rate,
        ];
        let periods = [
            &self.window,
            &self.scale_down_delay,
            &self.scale_to_zero_retention,
        ];
        counts.iter().all(Option::is_some)
            && numbers.iter().all(Option::is_some)
            && periods.iter().all(|period| period.is_some())
            && self.metric.is_some()
            && self.serve_hysteresis.is_none()
            && self.proxy_dwell.is_none()
    }

    fn without_earlier_defaults(self) -> Self {
        Self {
            min: unless(self.min, &0),
            max: unless(self.max, &0),
            metric: unless(self.metric, &Metric::Concurrency),
            target_utilization: unless(self.target_utilization, &0.7),
            window: unless(self.window, &Period::seconds(60)),
            panic_window_percentage: unless(self.panic_window_percentage, &10.0),
            panic_threshold_percentage: unless(self.panic_threshold_percentage, &200.0),
            target_burst_capacity: unless(self.target_burst_capacity, &211.0),
            max_scale_up_rate: unless(self.max_scale_up_rate, &1_000.0),
            max_scale_down_rate: unless(self.max_scale_down_rate, &2.0),
            scale_down_delay: unless(self.scale_down_delay, &Period::seconds(0)),
            scale_to_zero_retention: unless(self.scale_to_zero_retention, &Period::seconds(0)),
            activation_scale: unless(self.activation_scale, &1),
            initial_scale: unless(self.initial_scale, &0),
            ..self
        }
    }
}

fn unless<T: PartialEq>(value: Option<T>, default: &T) -> Option<T> {
    value.filter(|value| value != default)
}

fn seconds(period: Option<&Period>) -> Option<u32> {
    period.map(|period| u32::try_from(period.get().as_secs()).unwrap_or(u32::MAX))
}

fn milliseconds(period: &Period) -> i64 {
    i64::try_from(period.get().as_millis()).unwrap_or(i64::MAX)
}

/// A number of pods as the autoscaler has it.
pub(crate) fn count(pods: u32) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(scale: &Value) -> Scale {
        scale_of_any_version(scale).unwrap()
    }

    #[test]
    fn defaults_that_an_earlier_version_wrote_are_not_set() {
        let mut earlier = json!({
            "min": 0, "max": 0, "containerConcurrency": 3, "metric": "concurrency", "targetUtilization": 0.7,
            "window": "60s", "panicWindowPercentage": 10.0, "panicThresholdPercentage": 200.0,
            "targetBurstCapacity": 211.0, "maxScaleUpRate": 1000.0, "maxScaleDownRate": 2.0, "scaleDownDelay": "0s",
            "scaleToZeroRetention": "0s", "activationScale": 1, "initialScale": 0,
        });
        let expected = Scale {
            container_concurrency: 3,
            ..Scale::default()
        };
        assert_eq!(read(&earlier), expected);
        earlier["max"] = json!(4);
        assert_eq!(read(&earlier).max, Some(4), "it was set");
        let new = json!({"min": 0, "window": "60s", "initialScale": 0});
        assert_eq!(
            (read(&new).min, read(&new).initial_scale),
            (Some(0), Some(0))
        );
        earlier["serveHysteresis"] = json!(false);
        assert_eq!(read(&earlier).min, Some(0), "this version wrote it");
    }
}

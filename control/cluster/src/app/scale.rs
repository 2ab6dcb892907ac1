//! The autoscaling settings in an app's manifest: Knative's settings, with their meaning.

use dormouse_autoscaler::settings::Given;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Metric of the load.
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
    pub(crate) fn given(&self) -> Given {
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

//! The autoscaling settings of an app: Knative's settings, with their meaning and defaults.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;

/// Autoscaling settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    /// Minimum number of pods.
    pub min: u32,
    /// Maximum number of pods; 0 is no limit.
    pub max: u32,
    /// Requests in flight that a pod accepts; 0 is no limit. The activator enforces the limit, so it stays in the
    /// path: `target` alone lets it leave.
    pub container_concurrency: u32,
    /// The metric of `target`.
    pub metric: Metric,
    /// Target value of the metric per pod. Default for concurrency: `containerConcurrency`, or 100 if
    /// that has no limit; default for rps: 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Fraction of the target at which the autoscaler aims, 0 to 1.
    pub target_utilization: f64,
    /// Length of the stable window.
    pub window: Period,
    /// Length of the panic window, in percent of the stable window.
    pub panic_window_percentage: f64,
    /// Pods that the panic window asks for, in percent of the ready pods, at which panic mode begins.
    pub panic_threshold_percentage: f64,
    /// Requests of a burst that the ready pods must have capacity for before the activator leaves the
    /// path. 0: it leaves as soon as a pod is ready; -1: it never leaves.
    pub target_burst_capacity: f64,
    /// Maximum factor by which one decision increases the number of pods.
    pub max_scale_up_rate: f64,
    /// Maximum factor by which one decision decreases the number of pods.
    pub max_scale_down_rate: f64,
    /// Time for which fewer pods must be enough before the number of pods is reduced.
    pub scale_down_delay: Period,
    /// Minimum time for which the last pod is retained after the decision to scale to zero.
    pub scale_to_zero_retention: Period,
    /// Minimum number of pods when the app scales from zero.
    pub activation_scale: u32,
    /// Number of pods when the app is created.
    pub initial_scale: u32,
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

impl Default for Scale {
    fn default() -> Self {
        Self {
            min: 0,
            max: 0,
            container_concurrency: 0,
            metric: Metric::Concurrency,
            target: None,
            target_utilization: 0.7,
            window: Period::seconds(60),
            panic_window_percentage: 10.0,
            panic_threshold_percentage: 200.0,
            target_burst_capacity: 211.0,
            max_scale_up_rate: 1000.0,
            max_scale_down_rate: 2.0,
            scale_down_delay: Period::seconds(0),
            scale_to_zero_retention: Period::seconds(0),
            activation_scale: 1,
            initial_scale: 0,
        }
    }
}

impl Scale {
    /// Length of the stable window.
    pub fn window(&self) -> Duration {
        self.window.get()
    }

    /// Time for which fewer pods must be enough before the number of pods is reduced.
    pub fn scale_down_delay(&self) -> Duration {
        self.scale_down_delay.get()
    }

    /// Minimum time for which the last pod is retained after the decision to scale to zero.
    pub fn scale_to_zero_retention(&self) -> Duration {
        self.scale_to_zero_retention.get()
    }
}

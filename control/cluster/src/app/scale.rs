//! When an app runs how many pods: Knative's settings, meaning and defaults.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;

/// When to run how many pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    /// Fewest pods.
    pub min: u32,
    /// Most pods; 0 is no limit.
    pub max: u32,
    /// Requests a pod may work on at once; 0 is no limit.
    pub container_concurrency: u32,
    /// What `target` counts.
    pub metric: Metric,
    /// How much of the metric one pod shall carry; left out, it follows from `containerConcurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The share of the target that is aimed at, 0 to 1.
    pub target_utilization: f64,
    /// Length of the stable window.
    pub window: Period,
    /// The panic window, in percent of the stable one.
    pub panic_window_percentage: f64,
    /// Load over what is ready, in percent, from which the panic window decides.
    pub panic_threshold_percentage: f64,
    /// Requests beyond the ready pods' capacity that must fit before clients may reach the pods
    /// directly; 0: always direct once awake, -1: never direct.
    pub target_burst_capacity: f64,
    /// The most by which one decision may multiply the number of pods.
    pub max_scale_up_rate: f64,
    /// The most by which one decision may divide the number of pods.
    pub max_scale_down_rate: f64,
    /// How long a lower wish must last before it is followed.
    pub scale_down_delay: Period,
    /// How long the last pod stays after the app could sleep.
    pub scale_to_zero_retention: Period,
    /// Fewest pods on waking.
    pub activation_scale: u32,
    /// Pods at creation.
    pub initial_scale: u32,
}

/// What the load is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Requests in flight at once.
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

    /// How long a lower wish must last before it is followed.
    pub fn scale_down_delay(&self) -> Duration {
        self.scale_down_delay.get()
    }

    /// How long the last pod stays after the app could sleep.
    pub fn scale_to_zero_retention(&self) -> Duration {
        self.scale_to_zero_retention.get()
    }
}

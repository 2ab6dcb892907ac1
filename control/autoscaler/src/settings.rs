//! The settings of the autoscaler, from the app and from the cluster.
//!
//! [`Settings`] are the values in force. [`Cluster`] computes them from Knative's ConfigMap `config-autoscaler` and what an app
//! gives ([`Given`]): in its manifest, and in annotations, with Knative's rules at commit 98e5ef90: `pkg/autoscaler/config` (the ConfigMap),
//! `pkg/apis/autoscaling` (keys and refusals of annotations) and `pkg/reconciler/autoscaling` (values in force).

mod annotations;
mod cluster;
mod duration;
mod entries;
mod float;
mod given;
mod refusal;

pub use annotations::{is_annotation, is_floor_annotation};
pub use cluster::Cluster;
pub use given::Given;
pub use refusal::{Fault, Refused};

use serde::Serialize;

use crate::path::Damping;
use crate::window::Aggregation;

/// The metric of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Requests (or connections) in flight.
    #[default]
    Concurrency,
    /// Requests per second.
    Rps,
}

/// The effective settings of one app, with Knative's meaning and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Requests in flight that a pod accepts; 0 is no limit.
    pub container_concurrency: u32,
    /// The metric of the load.
    pub metric: Metric,
    /// Target of the metric per pod, before utilization; `None`: the concurrency limit, or the metric's default.
    pub target: Option<f64>,
    /// Fraction of the target at which the autoscaler aims, 0 to 1.
    pub target_utilization: f64,
    /// Length of the stable window, seconds.
    pub stable_window_s: u32,
    /// Length of the panic window, in percent of the stable window.
    pub panic_window_percentage: f64,
    /// Scale by the panic window, in percent of the ready pods, at which panic mode begins.
    pub panic_threshold_percentage: f64,
    /// Maximum factor by which one decision increases the scale.
    pub max_scale_up_rate: f64,
    /// Maximum factor by which one decision decreases the scale.
    pub max_scale_down_rate: f64,
    /// Time for which a lower scale must be enough before it is applied, seconds.
    pub scale_down_delay_s: u32,
    /// Minimum scale of an app that is not scaled to zero; not set if at most 1.
    pub activation_scale: i32,
    /// Scale of a new app.
    pub initial_scale: i32,
    /// Minimum scale.
    pub min_scale: i32,
    /// Maximum scale; 0 is no limit.
    pub max_scale: i32,
    /// Requests of a burst that the ready pods must have capacity for before the activator leaves the path;
    /// 0: it leaves as soon as a pod is ready; -1: it never leaves.
    pub target_burst_capacity: f64,
    /// Requests in flight that one activator handles.
    pub activator_capacity: f64,
    /// Aggregation of the samples of a window.
    pub aggregation: Aggregation,
    /// Whether the app may scale to zero.
    pub enable_scale_to_zero: bool,
    /// Minimum time for which the activator is in the path before the last pod is removed, milliseconds.
    pub scale_to_zero_grace_ms: i64,
    /// Minimum time for which the last pod is retained after the app became inactive, milliseconds.
    pub pod_retention_ms: i64,
    /// Time in which a pod must become ready, and a rollout make progress, milliseconds.
    pub progress_deadline_ms: i64,
    /// Damping of the change to serve mode; Knative has none.
    pub damping: Damping,
    /// False if no route references the app; then its minimum and initial scales are ignored.
    pub reachable: bool,
}

/// Target of requests in flight per pod if neither a limit nor a target is set.
const CONCURRENCY_TARGET_DEFAULT: f64 = 100.0;
/// Target of requests per second per pod if no target is set.
const RPS_TARGET_DEFAULT: f64 = 200.0;
/// Fraction of the target at which the autoscaler aims if none is set.
const TARGET_UTILIZATION: f64 = 0.7;
/// Lower limit of the target value, which is a divisor.
const TARGET_MIN: f64 = 0.01;

impl Default for Settings {
    fn default() -> Self {
        Self {
            container_concurrency: 0,
            metric: Metric::Concurrency,
            target: None,
            target_utilization: TARGET_UTILIZATION,
            stable_window_s: 60,
            panic_window_percentage: 10.0,
            panic_threshold_percentage: 200.0,
            max_scale_up_rate: 1_000.0,
            max_scale_down_rate: 2.0,
            scale_down_delay_s: 0,
            activation_scale: 0,
            initial_scale: 1,
            min_scale: 0,
            max_scale: 0,
            target_burst_capacity: 211.0,
            activator_capacity: 100.0,
            aggregation: Aggregation::Linear,
            enable_scale_to_zero: true,
            scale_to_zero_grace_ms: 30_000,
            pod_retention_ms: 0,
            progress_deadline_ms: 600_000,
            damping: Damping::default(),
            reachable: true,
        }
    }
}

impl Settings {
    /// Capacity of a pod, in the metric's unit.
    pub fn total_value(&self) -> f64 {
        let limit = f64::from(self.container_concurrency);
        match (self.metric, self.target) {
            (Metric::Rps, target) => target.unwrap_or(RPS_TARGET_DEFAULT),
            (Metric::Concurrency, Some(target)) if limit > 0.0 => target.min(limit),
            (Metric::Concurrency, Some(target)) => target,
            (Metric::Concurrency, None) if limit > 0.0 => limit,
            (Metric::Concurrency, None) => CONCURRENCY_TARGET_DEFAULT,
        }
    }

    /// Target value of the metric per pod: the capacity times the utilization.
    pub fn target_value(&self) -> f64 {
        (self.total_value() * self.target_utilization).max(TARGET_MIN)
    }

    /// The panic threshold as a factor of the ready pods.
    pub fn panic_threshold(&self) -> f64 {
        self.panic_threshold_percentage / 100.0
    }

    /// Length of the panic window in whole seconds, at least 1. Rounded from whole nanoseconds, as Knative does: the
    /// float's error decides about halves of a second.
    pub fn panic_window_s(&self) -> u32 {
        let ns = f64::from(self.stable_window_s) * 1e9 * self.panic_window_percentage / 100.0;
        crate::number::floor((ns.trunc() + 5e8) / 1e9)
            .max(1)
            .unsigned_abs()
    }

    /// Whether metrics are scraped from pods: then missing metrics are unknown, not zero.
    pub fn scraped(&self) -> bool {
        self.target_burst_capacity >= 0.0
    }

    /// The minimum scale in force.
    pub fn floor(&self) -> i32 {
        if self.reachable { self.min_scale } else { 0 }
    }

    /// The number of pods of an app without load that is not new.
    pub fn pods_idle(&self) -> i32 {
        self.floor().max(i32::from(!self.enable_scale_to_zero))
    }

    /// Time in which a rollout must make progress, seconds; at least 1.
    pub fn progress_deadline_s(&self) -> u32 {
        let seconds = self.progress_deadline_ms / 1_000;
        u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
    }

    /// The retention of the last pod in force, milliseconds.
    pub fn retention_ms(&self) -> i64 {
        if self.reachable {
            self.pod_retention_ms
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_of_a_pod_is_the_smaller_of_target_and_limit() {
        let settings = Settings {
            container_concurrency: 10,
            target: Some(50.0),
            ..Settings::default()
        };
        assert!((settings.total_value() - 10.0).abs() < 1e-12);
        assert!((settings.target_value() - 7.0).abs() < 1e-12);
    }

    #[test]
    fn the_panic_window_is_at_least_one_second() {
        let settings = Settings {
            stable_window_s: 6,
            panic_window_percentage: 1.0,
            ..Settings::default()
        };
        assert_eq!(settings.panic_window_s(), 1);
    }
    #[test]
    fn the_panic_window_is_rounded_from_whole_nanoseconds() {
        let settings = Settings {
            stable_window_s: 125,
            panic_window_percentage: 16.4,
            ..Settings::default()
        };
        // 20.5 s in decimals; the float is 20,499,999,999 ns and a fraction.
        assert_eq!(settings.panic_window_s(), 20);
    }
}

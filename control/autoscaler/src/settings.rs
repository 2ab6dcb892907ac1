//! What an app's owner and the cluster decided; the numbers of a decision follow from it.

use serde::Serialize;

use crate::window::Aggregation;

/// What is counted per pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Requests (or connections) in flight.
    #[default]
    Concurrency,
    /// Requests begun per second.
    Rps,
}

/// The effective settings of one app, with Knative's meaning and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Requests in flight that one pod accepts; 0: no limit.
    pub container_concurrency: u32,
    /// What is counted.
    pub metric: Metric,
    /// Wanted value of the metric per pod before utilization; none: the limit, or the metric's default.
    pub target: Option<f64>,
    /// The share of the target that is aimed at.
    pub target_utilization: f64,
    /// Length of the stable window, seconds.
    pub stable_window_s: u32,
    /// The panic window as a percentage of the stable one.
    pub panic_window_percentage: f64,
    /// Panic begins where pods asked for by the panic window are this percentage of the ready ones.
    pub panic_threshold_percentage: f64,
    /// The largest factor of growth in one decision.
    pub max_scale_up_rate: f64,
    /// The largest factor of shrinking in one decision.
    pub max_scale_down_rate: f64,
    /// A lower count must have been enough for this long, seconds.
    pub scale_down_delay_s: u32,
    /// The least number of pods of an app that has any; up to 1: unset.
    pub activation_scale: i32,
    /// The number of pods a new app is given before it has had traffic.
    pub initial_scale: i32,
    /// The least number of pods, always.
    pub min_scale: i32,
    /// The largest number of pods; 0: no limit.
    pub max_scale: i32,
    /// Requests of a burst that the ready pods must be able to take before the proxy leaves the path;
    /// 0: leaves whenever there are pods; -1: never leaves.
    pub target_burst_capacity: f64,
    /// Requests in flight that one activator carries.
    pub activator_capacity: f64,
    /// How samples of a window become one number.
    pub aggregation: Aggregation,
    /// Whether the last pod may go.
    pub enable_scale_to_zero: bool,
    /// How long the activator must have been in the path before the last pod goes, milliseconds.
    pub scale_to_zero_grace_ms: i64,
    /// How long the last pod is kept after the last traffic, milliseconds.
    pub pod_retention_ms: i64,
    /// How long a pod may take to become ready, milliseconds.
    pub progress_deadline_ms: i64,
    /// False: no route leads here; floors are dropped.
    pub reachable: bool,
}

/// Requests in flight per pod where neither a limit nor a target is set.
const CONCURRENCY_TARGET_DEFAULT: f64 = 100.0;
/// Requests per second per pod where no target is set.
const RPS_TARGET_DEFAULT: f64 = 200.0;
/// A target of zero would divide by zero.
const TARGET_MIN: f64 = 0.01;

impl Default for Settings {
    fn default() -> Self {
        Self {
            container_concurrency: 0,
            metric: Metric::Concurrency,
            target: None,
            target_utilization: 0.7,
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
            reachable: true,
        }
    }
}

impl Settings {
    /// What one pod can take, in the metric's unit.
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

    /// What one pod is meant to take: the total times the utilization.
    pub fn target_value(&self) -> f64 {
        (self.total_value() * self.target_utilization).max(TARGET_MIN)
    }

    /// The panic threshold as a factor of the ready pods.
    pub fn panic_threshold(&self) -> f64 {
        self.panic_threshold_percentage / 100.0
    }

    /// Length of the panic window in whole seconds, at least one.
    pub fn panic_window_s(&self) -> u32 {
        let seconds = f64::from(self.stable_window_s) * self.panic_window_percentage / 100.0;
        crate::number::truncated(seconds.round())
            .max(1)
            .unsigned_abs()
    }

    /// Whether pods are counted on their own, so that silence means "unknown" and not "nothing".
    pub fn scraped(&self) -> bool {
        self.target_burst_capacity >= 0.0
    }

    /// The least number of pods in force.
    pub fn floor(&self) -> i32 {
        if self.reachable { self.min_scale } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_target_and_limit_is_what_a_pod_takes() {
        let settings = Settings {
            container_concurrency: 10,
            target: Some(50.0),
            ..Settings::default()
        };
        assert!((settings.total_value() - 10.0).abs() < 1e-12);
        assert!((settings.target_value() - 7.0).abs() < 1e-12);
    }

    #[test]
    fn a_short_window_still_has_a_panic_window_of_one_second() {
        let settings = Settings {
            stable_window_s: 6,
            panic_window_percentage: 1.0,
            ..Settings::default()
        };
        assert_eq!(settings.panic_window_s(), 1);
    }
}

//! A decision of the decider, with all values that it was computed from.

use serde::Serialize;

/// The decision of one tick.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Time of the tick, in the caller's milliseconds.
    pub at_ms: i64,
    /// Desired scale, before the app's minimum and maximum.
    pub desired: i32,
    /// Capacity of the ready pods minus the target burst capacity and the load; the activator is in the path below 0.
    pub excess_burst_capacity: i32,
    /// Average of the metric over the stable window.
    pub stable: f64,
    /// Average of the metric over the panic window.
    pub panic: f64,
    /// Number of ready pods.
    pub ready: i32,
    /// Target value of the metric per pod.
    pub target_value: f64,
    /// Capacity of a pod, in the metric's unit.
    pub total_value: f64,
    /// Target burst capacity.
    pub target_burst_capacity: f64,
    /// Scale by the stable window: ceil(stable / target).
    pub stable_pods: i32,
    /// Scale by the panic window: ceil(panic / target).
    pub panic_pods: i32,
    /// Lower limit by the scale-down rate.
    pub down_limit: i32,
    /// Upper limit by the scale-up rate.
    pub up_limit: i32,
    /// `panic_pods` over ready pods.
    pub panic_ratio: f64,
    /// The panic ratio at which panic mode begins.
    pub panic_threshold: f64,
    /// Last time at which the ratio reached the threshold; `None` outside panic mode.
    pub panic_since_ms: Option<i64>,
    /// The largest scale since panic mode began; 0 outside panic mode.
    pub max_panic_pods: i32,
    /// Desired scale before the scale-down delay.
    pub desired_before_delay: i32,
}

impl Decision {
    /// Number of ready pods with which the activator leaves the path at the current load; `None`: it never leaves.
    pub fn pods_to_serve(&self) -> Option<i32> {
        (self.target_burst_capacity >= 0.0).then(|| {
            let needed = (self.target_burst_capacity + self.panic) / self.total_value;
            if self.target_burst_capacity > 0.0 {
                crate::number::ceil(needed).max(1)
            } else {
                1
            }
        })
    }

    /// Largest target burst capacity with which the activator leaves the path at the current load and ready pods.
    pub fn burst_capacity_to_serve(&self) -> i32 {
        crate::number::floor(f64::from(self.ready) * self.total_value - self.panic).max(0)
    }
}

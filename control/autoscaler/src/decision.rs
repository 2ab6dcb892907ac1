//! One decision with every number that led to it, so that a person can be told why.

use serde::Serialize;

/// What the decider answered at one tick, and why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When, in the caller's milliseconds.
    pub at_ms: i64,
    /// Pods wanted, before the app's own floor and limit.
    pub desired: i32,
    /// Requests of a burst that the ready pods can take beyond what is asked for; below 0 the proxy stays in the path.
    pub excess_burst_capacity: i32,
    /// The stable window's value.
    pub stable: f64,
    /// The panic window's value.
    pub panic: f64,
    /// Pods that are ready.
    pub ready: i32,
    /// What a pod is meant to take.
    pub target_value: f64,
    /// What a pod can take.
    pub total_value: f64,
    /// The burst capacity asked for.
    pub target_burst_capacity: f64,
    /// Pods that the stable window alone asks for: ceil(stable / target).
    pub stable_pods: i32,
    /// Pods that the panic window alone asks for: ceil(panic / target).
    pub panic_pods: i32,
    /// The rates allow no fewer.
    pub down_limit: i32,
    /// The rates allow no more.
    pub up_limit: i32,
    /// Pods asked for by the panic window over ready ones.
    pub panic_ratio: f64,
    /// Panic begins at this ratio.
    pub panic_threshold: f64,
    /// When the ratio was last over the threshold; none: not in panic.
    pub panic_since_ms: Option<i64>,
    /// The count that panic holds.
    pub panic_held: i32,
    /// What was wanted before the scale-down delay.
    pub undelayed: i32,
}

impl Decision {
    /// The ready pods at which the proxy would leave the path under the load as it is; none: never.
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

    /// The largest burst capacity with which the proxy would leave the path with the pods and the load as they are.
    pub fn burst_capacity_to_serve(&self) -> i32 {
        crate::number::floor(f64::from(self.ready) * self.total_value - self.panic).max(0)
    }
}

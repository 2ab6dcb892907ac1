//! The autoscaler's settings, from an app's manifest.

use std::time::Duration;

use dormouse_autoscaler::{Metric, Settings};
use dormouse_cluster::{AppSpec, Metric as Counted};

/// Apps with a window up to this long decide every second, others every [`TICK`]: a panic window must contain two ticks.
pub(crate) const SHORT_WINDOW: Duration = Duration::from_secs(10);
/// Interval of the decisions of apps with longer windows; Knative's.
pub const TICK: Duration = Duration::from_secs(2);

/// The settings of an app. `grace` is the cluster's time in proxy mode before the last pod is removed.
pub(crate) fn of(spec: &AppSpec, grace: Duration) -> Settings {
    let scale = &spec.scale;
    Settings {
        container_concurrency: scale.container_concurrency,
        metric: match scale.metric {
            Counted::Concurrency => Metric::Concurrency,
            Counted::Rps => Metric::Rps,
        },
        target: scale.target,
        target_utilization: scale.target_utilization,
        stable_window_s: seconds(scale.window()).max(1),
        panic_window_percentage: scale.panic_window_percentage,
        panic_threshold_percentage: scale.panic_threshold_percentage,
        max_scale_up_rate: scale.max_scale_up_rate,
        max_scale_down_rate: scale.max_scale_down_rate,
        scale_down_delay_s: seconds(scale.scale_down_delay()),
        activation_scale: count(scale.activation_scale),
        initial_scale: count(scale.initial_scale),
        min_scale: count(scale.min),
        max_scale: count(scale.max),
        target_burst_capacity: scale.target_burst_capacity,
        scale_to_zero_grace_ms: ms(grace),
        pod_retention_ms: ms(scale.scale_to_zero_retention()),
        ..Settings::default()
    }
}

fn seconds(period: Duration) -> u32 {
    u32::try_from(period.as_secs()).unwrap_or(u32::MAX)
}

fn ms(period: Duration) -> i64 {
    i64::try_from(period.as_millis()).unwrap_or(i64::MAX)
}

fn count(pods: u32) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

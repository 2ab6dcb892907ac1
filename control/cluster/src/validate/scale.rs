//! Knative's limits on its settings.

use std::time::Duration;

use crate::{FieldError, Scale};

/// Shortest stable window: below, one slow request decides alone.
const WINDOW_MIN: Duration = Duration::from_secs(6);
/// Longest stable window and longest delays.
const HOUR: Duration = Duration::from_secs(3_600);

/// Adds what is wrong with `scale`.
pub(super) fn check(scale: &Scale, errors: &mut Vec<FieldError>) {
    let mut must = |fine: bool, field: &str, message: String| {
        if !fine {
            errors.push(FieldError::invalid(format!("spec.scale.{field}"), message));
        }
    };
    let limits = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
    let max = scale.max;
    must(
        max == 0 || scale.min <= max,
        "min",
        format!("{} is above max {max}", scale.min),
    );
    must(
        max == 0 || scale.initial_scale <= max,
        "initialScale",
        format!("is above max {max}"),
    );
    must(
        max == 0 || scale.activation_scale <= max,
        "activationScale",
        format!("is above max {max}"),
    );
    must(
        scale.activation_scale >= 1,
        "activationScale",
        "must be at least 1: a wake starts a pod".into(),
    );
    must(
        scale.target.is_none_or(|target| limits(target, 0.01, 1e9)),
        "target",
        "must be at least 0.01".into(),
    );
    must(
        limits(scale.target_utilization, 0.01, 1.0),
        "targetUtilization",
        "must be between 0.01 and 1".into(),
    );
    must(
        (WINDOW_MIN..=HOUR).contains(&scale.window()),
        "window",
        "must be between 6s and 1h".into(),
    );
    must(
        limits(scale.panic_window_percentage, 1.0, 100.0),
        "panicWindowPercentage",
        "must be between 1 and 100".into(),
    );
    must(
        limits(scale.panic_threshold_percentage, 110.0, 1_000.0),
        "panicThresholdPercentage",
        "must be between 110 and 1000".into(),
    );
    let burst = scale.target_burst_capacity;
    must(
        limits(burst, 0.0, 1e9) || limits(burst, -1.0, -1.0),
        "targetBurstCapacity",
        "must be 0 or more, or -1 for a VIP that never leads straight to pods".into(),
    );
    must(
        limits(scale.max_scale_up_rate, 1.0 + 1e-9, 1e9),
        "maxScaleUpRate",
        "must be above 1".into(),
    );
    must(
        limits(scale.max_scale_down_rate, 1.0 + 1e-9, 1e9),
        "maxScaleDownRate",
        "must be above 1".into(),
    );
    must(
        scale.scale_down_delay() <= HOUR,
        "scaleDownDelay",
        "must be at most 1h".into(),
    );
}

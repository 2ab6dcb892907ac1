//! Validation of autoscaling settings, with Knative's limits.

use std::{ops::RangeInclusive, time::Duration};

use crate::{FieldError, Scale};

/// Shortest stable window: in a shorter one, a single slow request determines the scale.
const WINDOW_MIN: Duration = Duration::from_secs(6);
/// Longest stable window and longest scale-down delay.
const HOUR: Duration = Duration::from_hours(1);
/// Upper limit of rates and targets.
const NUMBER_MAX: f64 = 1e9;

/// Adds the errors of `scale`.
pub(super) fn check(scale: &Scale, errors: &mut Vec<FieldError>) {
    counts(scale, errors);
    shares(scale, errors);
    let mut must = |fine: bool, field, message: &str| require(errors, fine, field, message);
    let windows = WINDOW_MIN..=HOUR;
    must(
        windows.contains(&scale.window()),
        "window",
        "must be between 6s and 1h",
    );
    must(
        scale.scale_down_delay() <= HOUR,
        "scaleDownDelay",
        "must be at most 1h",
    );
}

fn counts(scale: &Scale, errors: &mut Vec<FieldError>) {
    let max = scale.max;
    let above = format!("is above max {max}");
    let mut must = |fine: bool, field, message: &str| require(errors, fine, field, message);
    must(max == 0 || scale.min <= max, "min", &above);
    must(
        max == 0 || scale.initial_scale <= max,
        "initialScale",
        &above,
    );
    must(
        max == 0 || scale.activation_scale <= max,
        "activationScale",
        &above,
    );
    must(
        scale.activation_scale >= 1,
        "activationScale",
        "must be at least 1: scaling from zero starts a pod",
    );
}

fn shares(scale: &Scale, errors: &mut Vec<FieldError>) {
    let above_one = 1.0 + f64::EPSILON..=NUMBER_MAX;
    let mut within = |value: f64, allowed: RangeInclusive<f64>, field, message: &str| {
        require(errors, allowed.contains(&value), field, message);
    };
    if let Some(target) = scale.target {
        within(target, 0.01..=NUMBER_MAX, "target", "must be at least 0.01");
    }
    let percent = "must be between 1 and 100";
    within(
        scale.target_utilization,
        0.01..=1.0,
        "targetUtilization",
        "must be between 0.01 and 1",
    );
    within(
        scale.panic_window_percentage,
        1.0..=100.0,
        "panicWindowPercentage",
        percent,
    );
    let threshold = "must be between 110 and 1000";
    within(
        scale.panic_threshold_percentage,
        110.0..=1_000.0,
        "panicThresholdPercentage",
        threshold,
    );
    within(
        scale.max_scale_up_rate,
        above_one.clone(),
        "maxScaleUpRate",
        "must be above 1",
    );
    within(
        scale.max_scale_down_rate,
        above_one,
        "maxScaleDownRate",
        "must be above 1",
    );
    let never = (-1.0..=-1.0).contains(&scale.target_burst_capacity);
    let burst = if never {
        0.0
    } else {
        scale.target_burst_capacity
    };
    let message = "must be 0 or more, or -1 to keep the activator in the path";
    within(burst, 0.0..=NUMBER_MAX, "targetBurstCapacity", message);
}

fn require(errors: &mut Vec<FieldError>, fine: bool, field: &str, message: &str) {
    if !fine {
        errors.push(FieldError::invalid(format!("spec.scale.{field}"), message));
    }
}

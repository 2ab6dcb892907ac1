//! Validation of autoscaling settings, with Knative's limits: those of the manifest, and of Knative's annotations.

use std::{ops::RangeInclusive, time::Duration};

use dormouse_autoscaler::settings::{Cluster, Given};

use crate::app::count;
use crate::{App, FieldError, Period, Scale};

/// Shortest stable window: in a shorter one, a single slow request determines the scale.
const WINDOW_MIN: Duration = Duration::from_secs(6);
/// Longest stable window and longest scale-down delay.
const HOUR: Duration = Duration::from_hours(1);
/// Upper limit of rates and targets.
const NUMBER_MAX: f64 = 1e9;
/// Upper limit of the pods that an app wants without load: a greater number is a typing error.
const PODS_MAX: u32 = 100_000;

/// Adds the errors of an app's settings.
pub(super) fn check(app: &App, cluster: &Cluster, errors: &mut Vec<FieldError>) {
    let annotations = app.metadata.annotations.clone().unwrap_or_default();
    let (annotated, faults) = cluster.admitted(&annotations);
    errors.extend(faults.iter().map(|fault| {
        let field = format!("metadata.annotations.{}", fault.key);
        FieldError::invalid(field, fault.message())
    }));
    let scale = &app.spec.scale;
    counts(scale, &annotated, errors);
    let limit = cluster.max_scale_limit();
    let within = |max: u32| limit == 0 || (1..=limit).contains(&count(max));
    let above = format!("must be from 1 to {limit}, the cluster's max-scale-limit");
    require(errors, scale.max.is_none_or(within), "max", &above);
    let starts = scale.initial_scale != Some(0) || cluster.allows_zero_initial_scale();
    // Control writes it to the revisions that get traffic.
    let starts = starts || app.parent().is_some();
    let message = "must be at least 1: the ConfigMap config-autoscaler does not allow 0";
    require(errors, starts, "initialScale", message);
    for (field, pods) in [
        ("min", scale.min),
        ("initialScale", scale.initial_scale),
        ("activationScale", scale.activation_scale),
    ] {
        let fine = pods.is_none_or(|pods| pods <= PODS_MAX);
        let message = format!(
            "must be at most {PODS_MAX}: dormouse up limits the pods of an app too, with --pods-per-app"
        );
        require(errors, fine, field, &message);
    }
    shares(scale, errors);
    periods(scale, errors);
}

/// The rules between numbers of pods, if at least one of them is in the manifest. Those between annotations are Knative's.
fn counts(scale: &Scale, annotated: &Given, errors: &mut Vec<FieldError>) {
    let given = scale.given();
    let both = given.clone().or(annotated.clone());
    let max = both.max_scale.filter(|max| *max > 0).unwrap_or(i32::MAX);
    let above = format!("is above max {max}");
    for (own, value, field) in [
        (given.min_scale, both.min_scale, "min"),
        (given.initial_scale, both.initial_scale, "initialScale"),
        (
            given.activation_scale,
            both.activation_scale,
            "activationScale",
        ),
    ] {
        let is_ruled = own.is_some() || given.max_scale.is_some();
        let fine = !is_ruled || value.is_none_or(|value| value <= max);
        require(errors, fine, field, &above);
    }
    require(
        errors,
        scale.activation_scale != Some(0),
        "activationScale",
        "must be at least 1: scaling from zero starts a pod",
    );
}

fn periods(scale: &Scale, errors: &mut Vec<FieldError>) {
    let period = |period: &Option<Period>| period.as_ref().map(Period::get);
    let windows = WINDOW_MIN..=HOUR;
    let window = period(&scale.window);
    require(
        errors,
        window.is_none_or(|window| windows.contains(&window)),
        "window",
        "must be between 6s and 1h",
    );
    for (field, given) in [
        ("scaleDownDelay", &scale.scale_down_delay),
        ("proxyDwell", &scale.proxy_dwell),
    ] {
        let fine = period(given).is_none_or(|given| given <= HOUR);
        require(errors, fine, field, "must be at most 1h");
    }
}

fn shares(scale: &Scale, errors: &mut Vec<FieldError>) {
    let above_one = 1.0 + f64::EPSILON..=NUMBER_MAX;
    let mut within = |value: Option<f64>, allowed: RangeInclusive<f64>, field, message: &str| {
        let fine = value.is_none_or(|value| allowed.contains(&value));
        require(errors, fine, field, message);
    };
    within(
        scale.target,
        0.01..=NUMBER_MAX,
        "target",
        "must be between 0.01 and 1000000000",
    );
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
        "must be above 1, and at most 1000000000",
    );
    within(
        scale.max_scale_down_rate,
        above_one,
        "maxScaleDownRate",
        "must be above 1, and at most 1000000000",
    );
    let without_limit = |capacity: &f64| (-1.0..=-1.0).contains(capacity);
    let burst = scale
        .target_burst_capacity
        .filter(|burst| !without_limit(burst));
    let message = "must be between 0 and 1000000000, or -1 to keep the activator in the path";
    within(burst, 0.0..=NUMBER_MAX, "targetBurstCapacity", message);
}

fn require(errors: &mut Vec<FieldError>, fine: bool, field: &str, message: &str) {
    if !fine {
        errors.push(FieldError::invalid(format!("spec.scale.{field}"), message));
    }
}

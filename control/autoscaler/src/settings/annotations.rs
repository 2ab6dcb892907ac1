//! The annotations of a revision, over the cluster's configuration.
//!
//! Sources: `pkg/apis/autoscaling/register.go` (keys and aliases), `annotation_validation.go` (refusals), and
//! `v1alpha1/pa_lifecycle.go` and `pkg/reconciler/autoscaling/resources/target.go` (values in force). Other annotations
//! are ignored, as Knative does.

use std::collections::BTreeMap;

use super::cluster::{
    BURST_CAPACITY_ALLOWED, Cluster, KPA, PANIC_WINDOW_ALLOWED, POSITIVE_COUNT_ALLOWED,
    WINDOW_ALLOWED, WINDOW_MAX, burst_capacity, milliseconds, panic_window, seconds, window,
};
use super::duration;
use super::entries::{Entries, Keys};
use super::{Fault, Given, Metric, TARGET_MIN};
use crate::window::Aggregation;

/// The group of the autoscaler's annotations.
const GROUP: &str = "autoscaling.knative.dev/";

/// Annotations of the group, by their names without it.
macro_rules! keys {
    ($($name:literal),+) => { &[$(concat!("autoscaling.knative.dev/", $name)),+] };
}

const CLASS: &Keys = keys!("class");
const METRIC: &Keys = keys!("metric");
const TARGET: &Keys = keys!("target");
const WINDOW: &Keys = keys!("window");
const ACTIVATION_SCALE: &Keys = keys!("activation-scale");
const INITIAL_SCALE: &Keys = keys!("initial-scale", "initialScale");
const MIN_SCALE: &Keys = keys!("min-scale", "minScale");
const MAX_SCALE: &Keys = keys!("max-scale", "maxScale");
const SCALE_DOWN_DELAY: &Keys = keys!("scale-down-delay", "scaleDownDelay");
const ALGORITHM: &Keys = keys!("metric-aggregation-algorithm", "metricAggregationAlgorithm");
const UTILIZATION: &Keys = keys!(
    "target-utilization-percentage",
    "targetUtilizationPercentage"
);
const BURST_CAPACITY: &Keys = keys!("target-burst-capacity", "targetBurstCapacity");
const PANIC_WINDOW: &Keys = keys!("panic-window-percentage", "panicWindowPercentage");
const PANIC_THRESHOLD: &Keys = keys!("panic-threshold-percentage", "panicThresholdPercentage");
const RETENTION: &Keys = keys!(
    "scale-to-zero-pod-retention-period",
    "scaleToZeroPodRetentionPeriod"
);
const PROGRESS_DEADLINE: &Keys = &["serving.knative.dev/progress-deadline"];

/// Whether an annotation of this name is a setting. Names of the autoscaler's group that are unknown count too: they change nothing.
pub fn is_annotation(name: &str) -> bool {
    name.starts_with(GROUP) || PROGRESS_DEADLINE.contains(&name)
}

/// Whether an annotation of this name decides how many pods an app without load has.
pub fn is_floor_annotation(name: &str) -> bool {
    MIN_SCALE.contains(&name) || INITIAL_SCALE.contains(&name)
}

/// The values that annotations give, and the faults; see [`Cluster::annotated`].
pub(super) fn given(
    cluster: &Cluster,
    annotations: &BTreeMap<String, String>,
) -> (Given, Vec<Fault>) {
    let mut entries = Entries::new(annotations);
    let mut given = Given::default();
    check_class(cluster, &mut entries);
    read_scales(cluster, &mut given, &mut entries);
    read_panic(&mut given, &mut entries);
    read_target(&mut given, &mut entries);
    read_periods(&mut given, &mut entries);
    (given, entries.faults())
}

/// The values that annotations give, and the faults for which Knative refuses an object: also a maximum beyond the cluster's limit,
/// which stays in force in objects that have it already.
pub(super) fn admitted(
    cluster: &Cluster,
    annotations: &BTreeMap<String, String>,
) -> (Given, Vec<Fault>) {
    let (given, mut faults) = given(cluster, annotations);
    let limit = cluster.max_scale_limit;
    let beyond = |max: &i32| limit > 0 && !(1..=limit).contains(max);
    if let Some(max) = given.max_scale.filter(beyond) {
        faults.push(Fault {
            key: name(&Entries::new(annotations), MAX_SCALE).to_owned(),
            value: max.to_string(),
            allowed: format!("from 1 to {limit}, the cluster's max-scale-limit"),
        });
    }
    (given, faults)
}

/// Knative leaves the annotations of other classes to other autoscalers; there are none here.
fn check_class(cluster: &Cluster, entries: &mut Entries<'_>) {
    let (key, class) = entries
        .get(CLASS)
        .unwrap_or(("pod-autoscaler-class", &cluster.class));
    if class != KPA {
        entries.refuse(key, class, format_args!("{KPA}, the only class"));
    }
}

fn read_scales(cluster: &Cluster, given: &mut Given, entries: &mut Entries<'_>) {
    let mut count = |keys| entries.integer(keys, POSITIVE_COUNT_ALLOWED, |pods| pods >= 0);
    given.min_scale = count(MIN_SCALE);
    given.max_scale = count(MAX_SCALE);
    given.activation_scale =
        entries.integer(ACTIVATION_SCALE, "an integer of at least 2", |pods| {
            pods >= 2
        });
    check_scales(entries, given);
    let allowed = if cluster.allow_zero_initial_scale {
        "an integer of at least 0"
    } else {
        "an integer of at least 1; the cluster does not allow 0"
    };
    let least = i64::from(!cluster.allow_zero_initial_scale);
    let initial = entries.read(INITIAL_SCALE, allowed, |text| {
        text.parse::<i64>().ok().filter(|&pods| pods >= least)
    });
    // Knative accepts 64 bits and ignores what does not fit into 32.
    given.initial_scale = initial.and_then(|pods| i32::try_from(pods).ok());
}

/// The rules between the annotated minimum, maximum and activation scale; what is refused gives nothing. The cluster's defaults do not
/// count.
fn check_scales(entries: &mut Entries<'_>, given: &mut Given) {
    let least = given.min_scale.unwrap_or(0);
    let most = given.max_scale.filter(|&max| max > 0).unwrap_or(i32::MAX);
    if let Some(max) = given.max_scale {
        let key = name(entries, MAX_SCALE);
        if most < least {
            let allowed = format_args!("at least min-scale, which is {least}, or 0 for no limit");
            entries.refuse(key, max, allowed);
            given.max_scale = None;
        }
    }
    let refused = |pods: &mut i32| *pods < least || *pods > most;
    if let Some(activation) = given.activation_scale.take_if(refused) {
        let key = name(entries, ACTIVATION_SCALE);
        entries.refuse(key, activation, "from min-scale to max-scale");
    }
}

/// The name under which a value is present.
fn name(entries: &Entries<'_>, keys: &Keys) -> &'static str {
    entries.get(keys).map_or(keys[0], |(key, _)| key)
}

fn read_panic(given: &mut Given, entries: &mut Entries<'_>) {
    given.panic_window_percentage = entries.float(PANIC_WINDOW, PANIC_WINDOW_ALLOWED, panic_window);
    given.panic_threshold_percentage =
        entries.float(PANIC_THRESHOLD, "a number from 110 to 1000", |percentage| {
            (110.0..=1_000.0).contains(&percentage)
        });
    given.target_burst_capacity =
        entries.float(BURST_CAPACITY, BURST_CAPACITY_ALLOWED, burst_capacity);
}

fn read_target(given: &mut Given, entries: &mut Entries<'_>) {
    given.metric = entries.read(METRIC, "concurrency or rps", |text| match text {
        "concurrency" => Some(Metric::Concurrency),
        "rps" => Some(Metric::Rps),
        _ => None,
    });
    given.target = entries.float(TARGET, "a number of at least 0.01", |target| {
        target >= TARGET_MIN
    });
    let percentage = entries.float(UTILIZATION, "a number from 1 to 100", |percentage| {
        (1.0..=100.0).contains(&percentage)
    });
    given.target_utilization = percentage.map(|percentage| percentage / 100.0);
    let algorithms = "linear or weighted-exponential";
    given.aggregation = entries.read(ALGORITHM, algorithms, |text| match text {
        "" | "linear" => Some(Aggregation::Linear),
        "weighted-exponential" | "weightedExponential" => Some(Aggregation::WeightedExponential),
        _ => None,
    });
}

fn read_periods(given: &mut Given, entries: &mut Entries<'_>) {
    let stable = entries.duration(WINDOW, WINDOW_ALLOWED, window);
    given.stable_window_s = stable.map(seconds);
    let allowed = "a duration from 0s to 1h in whole seconds";
    let delay = entries.duration(SCALE_DOWN_DELAY, allowed, |delay| {
        (0..=WINDOW_MAX).contains(&delay) && duration::whole_seconds(delay)
    });
    given.scale_down_delay_s = delay.map(seconds);
    let retention = entries.duration(RETENTION, "a duration from 0s to 1h", |retention| {
        (0..=WINDOW_MAX).contains(&retention)
    });
    given.pod_retention_ms = retention.map(milliseconds);
    // Empty is not set.
    if entries
        .get(PROGRESS_DEADLINE)
        .is_none_or(|(_, text)| !text.is_empty())
    {
        let allowed = "a duration of at least 0s in whole seconds";
        let deadline = entries.duration(PROGRESS_DEADLINE, allowed, |deadline| {
            deadline >= 0 && duration::whole_seconds(deadline)
        });
        given.progress_deadline_ms = deadline.map(milliseconds);
    }
}

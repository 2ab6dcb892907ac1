//! The cluster's configuration: the entries of Knative's ConfigMap `config-autoscaler`.
//!
//! Source: `pkg/autoscaler/config/config.go`. Entries with other keys are ignored, as Knative does.

use std::collections::BTreeMap;

use super::duration::{self, MILLISECOND, SECOND};
use super::entries::Entries;
use super::{
    CONCURRENCY_TARGET_DEFAULT, Fault, Given, Metric, RPS_TARGET_DEFAULT, Refused, Settings,
    TARGET_MIN, TARGET_UTILIZATION, annotations,
};

/// Knative's pod autoscaler, the one class that is implemented.
pub(super) const KPA: &str = "kpa.autoscaling.knative.dev";
/// Limits of the stable window, nanoseconds.
pub(super) const WINDOW_MIN: i64 = 6 * SECOND;
pub(super) const WINDOW_MAX: i64 = 3_600 * SECOND;
/// The values that the rules of both the cluster and the annotations allow.
pub(super) const WINDOW_ALLOWED: &str = "a duration from 6s to 1h in whole seconds";
pub(super) const BURST_CAPACITY_ALLOWED: &str = "a number of at least 0, or -1 for no limit";
pub(super) const PANIC_WINDOW_ALLOWED: &str = "a number from 1 to 100";
pub(super) const POSITIVE_COUNT_ALLOWED: &str = "an integer from 0 to 2147483647";

/// The values that hold for all apps whose annotations do not set them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The settings of an app without annotations. Its target is not set, and its utilization is that of concurrency.
    pub(super) defaults: Settings,
    /// The class of an app whose annotations name none.
    pub(super) class: String,
    /// Target of requests in flight per pod if neither a limit nor a target is set.
    pub(super) concurrency_target: f64,
    /// Target of requests per second per pod if no target is set.
    pub(super) rps_target: f64,
    /// Whether an app's initial scale may be 0.
    pub(super) allow_zero_initial_scale: bool,
    /// Upper limit of an app's maximum scale; 0 is no limit.
    pub(super) max_scale_limit: i32,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            defaults: Settings::default(),
            class: KPA.to_owned(),
            concurrency_target: CONCURRENCY_TARGET_DEFAULT,
            rps_target: RPS_TARGET_DEFAULT,
            allow_zero_initial_scale: false,
            max_scale_limit: 0,
        }
    }
}

impl Cluster {
    /// Dormouse's defaults: Knative's, but an app starts asleep. `grace_ms` is the time for which the activator is in the path before
    /// an app's last pod is removed, milliseconds.
    pub fn starting_asleep(grace_ms: i64) -> Self {
        Self {
            defaults: Settings {
                initial_scale: 0,
                scale_to_zero_grace_ms: grace_ms,
                ..Settings::default()
            },
            allow_zero_initial_scale: true,
            ..Self::default()
        }
    }

    /// The configuration of a ConfigMap's entries; keys that are absent have the values of this one.
    pub fn with_entries(self, config: &BTreeMap<String, String>) -> Result<Self, Refused> {
        let mut entries = Entries::new(config);
        let mut cluster = self;
        cluster.read_cluster(&mut entries);
        cluster.read_rates(&mut entries);
        cluster.read_periods(&mut entries);
        cluster.read_scales(&mut entries);
        entries.check()?;
        if !cluster.allow_zero_initial_scale && !config.contains_key("initial-scale") {
            let initial = &mut cluster.defaults.initial_scale;
            *initial = (*initial).max(1);
        }
        cluster.check_target(&mut entries);
        cluster.check_scales(&mut entries);
        entries.check()?;
        Ok(cluster)
    }

    /// Upper limit of an app's maximum scale; 0 is no limit.
    pub fn max_scale_limit(&self) -> i32 {
        self.max_scale_limit
    }

    /// The values that the annotations of a new state of an app give, and the faults for which Knative refuses it.
    pub fn admitted(&self, annotations: &BTreeMap<String, String>) -> (Given, Vec<Fault>) {
        annotations::admitted(self, annotations)
    }

    /// Whether an app may start without pods.
    pub fn allows_zero_initial_scale(&self) -> bool {
        self.allow_zero_initial_scale
    }

    /// The values in force that an app's annotations give. Annotations with a fault give nothing.
    pub fn annotated(&self, annotations: &BTreeMap<String, String>) -> (Given, Vec<Fault>) {
        annotations::given(self, annotations)
    }

    /// The settings in force of an app that gives these values. `container_concurrency` is the hard limit of requests in flight per
    /// pod, 0 for none; `reachable` is false if no route references the app.
    pub fn settings(&self, given: &Given, container_concurrency: u32, reachable: bool) -> Settings {
        let mut settings = Settings {
            container_concurrency,
            reachable,
            ..self.defaults.clone()
        };
        self.set_target(given, &mut settings);
        let window = given.panic_window_percentage;
        set(&mut settings.panic_window_percentage, window);
        let threshold = given.panic_threshold_percentage;
        set(&mut settings.panic_threshold_percentage, threshold);
        set(&mut settings.stable_window_s, given.stable_window_s);
        set(&mut settings.max_scale_up_rate, given.max_scale_up_rate);
        set(&mut settings.max_scale_down_rate, given.max_scale_down_rate);
        set(&mut settings.scale_down_delay_s, given.scale_down_delay_s);
        set(&mut settings.activation_scale, given.activation_scale);
        set(&mut settings.initial_scale, given.initial_scale);
        set(&mut settings.min_scale, given.min_scale);
        set(&mut settings.max_scale, given.max_scale);
        let capacity = given.target_burst_capacity;
        set(&mut settings.target_burst_capacity, capacity);
        set(&mut settings.aggregation, given.aggregation);
        set(&mut settings.pod_retention_ms, given.pod_retention_ms);
        let deadline = given.progress_deadline_ms;
        set(&mut settings.progress_deadline_ms, deadline);
        set(&mut settings.damping.hysteresis, given.hysteresis);
        set(&mut settings.damping.dwell_ms, given.dwell_ms);
        settings
    }

    /// The defaults of the target and of the utilization depend on the metric.
    fn set_target(&self, given: &Given, settings: &mut Settings) {
        set(&mut settings.metric, given.metric);
        let (target, utilization) = match settings.metric {
            Metric::Rps => (Some(self.rps_target), TARGET_UTILIZATION),
            Metric::Concurrency => {
                let unlimited = settings.container_concurrency == 0;
                let target = unlimited.then_some(self.concurrency_target);
                (target, self.defaults.target_utilization)
            }
        };
        settings.target = given.target.or(target);
        settings.target_utilization = given.target_utilization.unwrap_or(utilization);
    }

    fn read_cluster(&mut self, entries: &mut Entries<'_>) {
        if let Some((_, class)) = entries.get(&["pod-autoscaler-class"]) {
            class.trim().clone_into(&mut self.class);
        }
        let defaults = &mut self.defaults;
        let enabled = entries.boolean(&["enable-scale-to-zero"]);
        set(&mut defaults.enable_scale_to_zero, enabled);
        let allowed = entries.boolean(&["allow-zero-initial-scale"]);
        set(&mut self.allow_zero_initial_scale, allowed);
        let capacity = entries.float(
            &["activator-capacity"],
            "a number of at least 1",
            |requests| requests >= 1.0,
        );
        set(&mut defaults.activator_capacity, capacity);
        let capacity = entries.float(
            &["target-burst-capacity"],
            BURST_CAPACITY_ALLOWED,
            burst_capacity,
        );
        set(&mut defaults.target_burst_capacity, capacity);
    }

    fn read_rates(&mut self, entries: &mut Entries<'_>) {
        let defaults = &mut self.defaults;
        let rate = "a number greater than 1";
        let up = entries.float(&["max-scale-up-rate"], rate, |rate| rate > 1.0);
        set(&mut defaults.max_scale_up_rate, up);
        let down = entries.float(&["max-scale-down-rate"], rate, |rate| rate > 1.0);
        set(&mut defaults.max_scale_down_rate, down);
        let utilization = entries.float(
            &["container-concurrency-target-percentage"],
            "a percentage greater than 1, up to 100, or a fraction greater than 0, up to 1",
            |value| value > 0.0 && fraction(value) <= 1.0,
        );
        set(&mut defaults.target_utilization, utilization.map(fraction));
        let target = entries.float(
            &["container-concurrency-target-default"],
            "a number",
            |_| true,
        );
        set(&mut self.concurrency_target, target);
        let target = entries.float(
            &["requests-per-second-target-default"],
            "a number of at least 0.01",
            |target| target >= TARGET_MIN,
        );
        set(&mut self.rps_target, target);
        let panic_window = entries.float(
            &["panic-window-percentage"],
            PANIC_WINDOW_ALLOWED,
            panic_window,
        );
        set(&mut defaults.panic_window_percentage, panic_window);
        let threshold = entries.float(&["panic-threshold-percentage"], "a number", |_| true);
        set(&mut defaults.panic_threshold_percentage, threshold);
    }

    fn read_periods(&mut self, entries: &mut Entries<'_>) {
        let defaults = &mut self.defaults;
        let window = entries.duration(&["stable-window"], WINDOW_ALLOWED, window);
        set(&mut defaults.stable_window_s, window.map(seconds));
        let delay = entries.duration(
            &["scale-down-delay"],
            "a duration of at least 0s in whole seconds",
            |delay| delay >= 0 && duration::whole_seconds(delay),
        );
        set(&mut defaults.scale_down_delay_s, delay.map(seconds));
        let grace = entries.duration(
            &["scale-to-zero-grace-period"],
            "a duration greater than 0s",
            |grace| grace > 0,
        );
        set(
            &mut defaults.scale_to_zero_grace_ms,
            grace.map(milliseconds),
        );
        let retention = entries.duration(
            &["scale-to-zero-pod-retention-period"],
            "a duration of at least 0s",
            |retention| retention >= 0,
        );
        set(&mut defaults.pod_retention_ms, retention.map(milliseconds));
    }

    fn read_scales(&mut self, entries: &mut Entries<'_>) {
        let mut count = |key| entries.integer(&[key], POSITIVE_COUNT_ALLOWED, |pods| pods >= 0);
        set(&mut self.defaults.initial_scale, count("initial-scale"));
        set(&mut self.defaults.min_scale, count("min-scale"));
        set(&mut self.defaults.max_scale, count("max-scale"));
        set(&mut self.max_scale_limit, count("max-scale-limit"));
    }

    /// The target of concurrency is a divisor.
    fn check_target(&self, entries: &mut Entries<'_>) {
        let (target, utilization) = (self.concurrency_target, self.defaults.target_utilization);
        if utilization * target < TARGET_MIN {
            entries.refuse(
                "container-concurrency-target-default",
                target,
                format_args!(
                    "at least {TARGET_MIN} after container-concurrency-target-percentage, a factor of {utilization}"
                ),
            );
        }
    }

    fn check_scales(&self, entries: &mut Entries<'_>) {
        let Settings {
            initial_scale,
            min_scale,
            max_scale,
            ..
        } = self.defaults;
        let limit = self.max_scale_limit;
        if initial_scale == 0 && !self.allow_zero_initial_scale {
            let allowed = "at least 1, or 0 with allow-zero-initial-scale";
            entries.refuse("initial-scale", initial_scale, allowed);
        }
        if limit > 0 && !(1..=limit).contains(&max_scale) {
            let allowed = format_args!("from 1 to max-scale-limit, which is {limit}");
            entries.refuse("max-scale", max_scale, allowed);
        }
        if max_scale > 0 && min_scale > max_scale {
            let allowed = format_args!("at most max-scale, which is {max_scale}");
            entries.refuse("min-scale", min_scale, allowed);
        }
    }
}

/// Replaces a default by the value that was given, if there is one.
fn set<T>(default: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *default = value;
    }
}

/// A percentage as a fraction; values up to 1 are fractions already.
fn fraction(percentage: f64) -> f64 {
    if percentage > 1.0 {
        percentage / 100.0
    } else {
        percentage
    }
}

/// Whether the target burst capacity is valid. -1 means without limit.
#[expect(
    clippy::float_cmp,
    reason = "-1 is a mark, not the result of a computation"
)]
pub(super) fn burst_capacity(requests: f64) -> bool {
    requests >= 0.0 || requests == -1.0
}

pub(super) fn panic_window(percentage: f64) -> bool {
    (1.0..=100.0).contains(&percentage)
}

/// Whether the stable window is valid.
pub(super) fn window(ns: i64) -> bool {
    (WINDOW_MIN..=WINDOW_MAX).contains(&ns) && duration::whole_seconds(ns)
}

/// A duration that is not negative in whole seconds, at most 136 years.
pub(super) fn seconds(ns: i64) -> u32 {
    u32::try_from(ns / SECOND).unwrap_or(u32::MAX)
}

/// A duration in whole milliseconds.
pub(super) fn milliseconds(ns: i64) -> i64 {
    ns / MILLISECOND
}

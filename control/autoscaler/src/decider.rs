//! Knative's decider: the scale of an app from its metrics, with stable window, panic mode and excess burst capacity.

use crate::decision::Decision;
use crate::delay::Delay;
use crate::number;
use crate::settings::{Metric, Settings};
use crate::window::Window;

/// The metrics of one second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stat {
    /// Average requests in flight.
    pub concurrency: f64,
    /// The part of `concurrency` that came through an activator, which reports it in its own stat.
    pub proxied_concurrency: f64,
    /// Number of requests.
    pub requests: f64,
    /// The part of `requests` that came through an activator, which reports it in its own stat.
    pub proxied_requests: f64,
}

impl Stat {
    fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Concurrency => self.concurrency - self.proxied_concurrency,
            Metric::Rps => self.requests - self.proxied_requests,
        }
    }
}

/// The reason why a tick makes no decision; the previous decision stays in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoDecision {
    /// There are no metrics of the stable window.
    #[error("no metrics within the stable window")]
    NoData,
    /// The number of ready pods could not be determined.
    #[error("the number of ready pods is unknown")]
    PodsUnknown,
}

/// The decider's status, which the reconciler reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Desired scale; -1 before the first decision.
    pub desired: i32,
    /// Excess burst capacity.
    pub excess_burst_capacity: i32,
}

impl Status {
    /// The status before the first decision.
    pub fn initial(settings: &Settings) -> Self {
        let capacity = settings.target_burst_capacity;
        let excess = if is(capacity, 0.0) || is(capacity, -1.0) {
            capacity
        } else {
            f64::from(settings.initial_scale) * settings.total_value() - capacity
        };
        Self {
            desired: -1,
            excess_burst_capacity: number::truncated(excess),
        }
    }
}

/// The decider of one app. Exists while the app is awake.
#[derive(Debug, Clone)]
pub struct Decider {
    settings: Settings,
    stable: Window,
    panic: Window,
    panic_since_ms: Option<i64>,
    max_panic_pods: i32,
    delay: Option<Delay>,
    status: Status,
}

impl Decider {
    /// A decider without metrics. With more than one ready pod it starts in panic mode, which does not scale down:
    /// after a restart, pods must not be removed for lack of metrics.
    pub fn new(now_ms: i64, settings: Settings, ready: Option<i32>) -> Self {
        let ready = ready.unwrap_or(0);
        Self {
            stable: Window::new(settings.stable_window_s, settings.aggregation),
            panic: Window::new(settings.panic_window_s(), settings.aggregation),
            panic_since_ms: (ready > 1).then_some(now_ms),
            max_panic_pods: ready,
            delay: (settings.scale_down_delay_s > 0)
                .then(|| Delay::new(settings.scale_down_delay_s)),
            status: Status::initial(&settings),
            settings,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The status after the last decision.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Start of panic mode, in the caller's milliseconds; `None` outside panic mode.
    pub fn panic_since_ms(&self) -> Option<i64> {
        self.panic_since_ms
    }

    /// The largest scale since panic mode began; 0 outside panic mode.
    pub fn max_panic_pods(&self) -> i32 {
        self.max_panic_pods
    }

    /// Records a stat in both windows.
    pub fn record(&mut self, at_ms: i64, stat: &Stat) {
        let value = stat.value(self.settings.metric);
        self.stable.record(at_ms, value);
        self.panic.record(at_ms, value);
    }

    /// Sets new settings, except the scale-down delay; [`Decider::resize`] sets the lengths of the windows.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Sets the scale-down delay to that of the settings, if it is another one than `before_s`: it begins with the desired scale. Knative
    /// makes a new decider for each revision.
    pub fn set_delay(&mut self, before_s: u32, now_ms: i64) {
        let delay_s = self.settings.scale_down_delay_s;
        if delay_s == before_s {
            return;
        }
        self.delay = (delay_s > 0).then(|| {
            let mut delay = Delay::new(delay_s);
            if self.status.desired > 0 {
                delay.record(now_ms, self.status.desired);
            }
            delay
        });
    }

    /// Sets the lengths of the windows to those of the settings.
    pub fn resize(&mut self, now_ms: i64) {
        self.stable.resize(now_ms, self.settings.stable_window_s);
        self.panic.resize(now_ms, self.settings.panic_window_s());
    }

    /// Makes a decision. `ready` is the number of ready pods; `None` if it could not be determined.
    pub fn decide(&mut self, now_ms: i64, ready: Option<i32>) -> Result<Decision, NoDecision> {
        let ready = ready.ok_or(NoDecision::PodsUnknown)?;
        if self.settings.scraped() && self.stable.is_empty(now_ms) {
            return Err(NoDecision::NoData);
        }
        let mut decision = self.load(now_ms, ready);
        self.panic(&mut decision);
        self.limit(&mut decision);
        self.status = Status {
            desired: decision.desired,
            excess_burst_capacity: decision.excess_burst_capacity,
        };
        Ok(decision)
    }

    /// The values of a decision from load and rates, before panic mode and limits.
    fn load(&self, now_ms: i64, ready: i32) -> Decision {
        let settings = &self.settings;
        let (stable, panic) = (self.stable.average(now_ms), self.panic.average(now_ms));
        let target = settings.target_value();
        let counted = f64::from(ready.max(1));
        let down = if settings.reachable {
            (counted / settings.max_scale_down_rate).floor()
        } else {
            0.0
        };
        let panic_pods = (panic / target).ceil();
        Decision {
            at_ms: now_ms,
            desired: 0,
            excess_burst_capacity: self.excess_burst_capacity(ready, panic),
            stable,
            panic,
            ready,
            target_value: target,
            total_value: settings.total_value(),
            target_burst_capacity: settings.target_burst_capacity,
            stable_pods: number::ceil(stable / target),
            panic_pods: number::truncated(panic_pods),
            down_limit: number::truncated(down),
            up_limit: number::ceil(settings.max_scale_up_rate * counted),
            panic_ratio: panic_pods / counted,
            panic_threshold: settings.panic_threshold(),
            panic_since_ms: None,
            max_panic_pods: 0,
            desired_before_delay: 0,
        }
    }

    /// Enters, extends or leaves panic mode.
    fn panic(&mut self, decision: &mut Decision) {
        let window_ms = i64::from(self.settings.stable_window_s) * 1_000;
        if decision.panic_ratio >= decision.panic_threshold {
            self.panic_since_ms = Some(decision.at_ms);
        } else if self
            .panic_since_ms
            .is_some_and(|since| since + window_ms < decision.at_ms)
        {
            self.panic_since_ms = None;
            self.max_panic_pods = 0;
        }
        decision.panic_since_ms = self.panic_since_ms;
    }

    /// Applies the scale rates, the activation scale, panic mode and the scale-down delay.
    fn limit(&mut self, decision: &mut Decision) {
        let within = |pods: i32| {
            let allowed = pods.max(decision.down_limit).min(decision.up_limit);
            let activates = self.settings.activation_scale > 1 && pods > 0;
            if activates {
                allowed.max(self.settings.activation_scale)
            } else {
                allowed
            }
        };
        let mut desired = within(decision.stable_pods);
        if self.panic_since_ms.is_some() {
            self.max_panic_pods = self
                .max_panic_pods
                .max(desired)
                .max(within(decision.panic_pods));
            desired = self.max_panic_pods;
        }
        decision.max_panic_pods = self.max_panic_pods;
        decision.desired_before_delay = desired;
        decision.desired = match &mut self.delay {
            Some(delay) if self.settings.reachable => delay.record(decision.at_ms, desired),
            _ => desired,
        };
    }

    fn excess_burst_capacity(&self, ready: i32, panic: f64) -> i32 {
        let capacity = self.settings.target_burst_capacity;
        if is(capacity, 0.0) {
            0
        } else if capacity > 0.0 {
            number::floor(f64::from(ready) * self.settings.total_value() - capacity - panic)
        } else {
            -1
        }
    }
}

/// Equality with a value that settings contain literally.
fn is(value: f64, literal: f64) -> bool {
    value.total_cmp(&literal).is_eq()
}

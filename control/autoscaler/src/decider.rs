//! Samples and ready pods in, a decision out: Knative's decider with its two windows, panic and excess burst capacity.

use crate::decision::Decision;
use crate::delay::Delay;
use crate::number;
use crate::settings::{Metric, Settings};
use crate::window::Window;

/// What was measured over one second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stat {
    /// Requests in flight on average.
    pub concurrency: f64,
    /// The part of them that came through a proxy which reports them itself.
    pub proxied_concurrency: f64,
    /// Requests begun.
    pub requests: f64,
    /// The part of them that came through a proxy which reports them itself.
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

/// Why a tick decides nothing. What was decided before stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoDecision {
    /// Nothing was measured for longer than the stable window.
    #[error("nothing was measured within the stable window")]
    Unmeasured,
    /// How many pods are ready could not be found out.
    #[error("the number of ready pods is unknown")]
    PodsUnknown,
}

/// The last decision in short, as the reconciler reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Pods wanted; -1: not known yet.
    pub desired: i32,
    /// Excess burst capacity.
    pub excess_burst_capacity: i32,
}

impl Status {
    /// What holds before the first decision.
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

    /// Whether the first request to a sleeping app calls for a decision at once.
    pub fn poked_by(&self, stat: &Stat) -> bool {
        self.desired == 0 && !is(stat.concurrency, 0.0)
    }

    /// Whether going to `next` is news: another count, or another sign of the excess burst capacity.
    pub fn differs(&self, next: &Self) -> bool {
        self.desired != next.desired
            || (self.excess_burst_capacity < 0) != (next.excess_burst_capacity < 0)
    }
}

/// The decider of one app. Exists while the app is awake.
#[derive(Debug, Clone)]
pub struct Decider {
    settings: Settings,
    stable: Window,
    panic: Window,
    panic_since_ms: Option<i64>,
    panic_held: i32,
    delay: Option<Delay>,
    status: Status,
}

impl Decider {
    /// A decider that has measured nothing. With several ready pods it starts in panic, which holds their number: a
    /// restart must not remove pods for want of memory.
    pub fn new(now_ms: i64, settings: Settings, ready: Option<i32>) -> Self {
        let ready = ready.unwrap_or(0);
        Self {
            stable: Window::new(settings.stable_window_s, settings.aggregation),
            panic: Window::new(settings.panic_window_s(), settings.aggregation),
            panic_since_ms: (ready > 1).then_some(now_ms),
            panic_held: ready,
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

    /// The last decision in short.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Since when panic holds, if it does.
    pub fn panic_since_ms(&self) -> Option<i64> {
        self.panic_since_ms
    }

    /// The count that panic holds.
    pub fn panic_held(&self) -> i32 {
        self.panic_held
    }

    /// Adds a measurement.
    pub fn record(&mut self, at_ms: i64, stat: &Stat) {
        let value = stat.value(self.settings.metric);
        self.stable.record(at_ms, value);
        self.panic.record(at_ms, value);
    }

    /// Takes new settings, all but the scale-down delay; the windows follow by [`Decider::resize`].
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Gives the windows the lengths that the settings ask for.
    pub fn resize(&mut self, now_ms: i64) {
        self.stable.resize(now_ms, self.settings.stable_window_s);
        self.panic.resize(now_ms, self.settings.panic_window_s());
    }

    /// Decides. `ready` is none where it could not be found out.
    pub fn decide(&mut self, now_ms: i64, ready: Option<i32>) -> Result<Decision, NoDecision> {
        let ready = ready.ok_or(NoDecision::PodsUnknown)?;
        if self.settings.scraped() && self.stable.is_empty(now_ms) {
            return Err(NoDecision::Unmeasured);
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

    /// What load and rates alone say.
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
            panic_held: 0,
            undelayed: 0,
        }
    }

    /// Enters, prolongs or leaves panic.
    fn panic(&mut self, decision: &mut Decision) {
        let window_ms = i64::from(self.settings.stable_window_s) * 1_000;
        if decision.panic_ratio >= decision.panic_threshold {
            self.panic_since_ms = Some(decision.at_ms);
        } else if self
            .panic_since_ms
            .is_some_and(|since| since + window_ms < decision.at_ms)
        {
            self.panic_since_ms = None;
            self.panic_held = 0;
        }
        decision.panic_since_ms = self.panic_since_ms;
    }

    /// Puts what the load asks for between its limits.
    fn limit(&mut self, decision: &mut Decision) {
        let within = |asked: i32| {
            let allowed = asked.max(decision.down_limit).min(decision.up_limit);
            let lifted = self.settings.activation_scale > 1 && asked > 0;
            if lifted {
                allowed.max(self.settings.activation_scale)
            } else {
                allowed
            }
        };
        let mut desired = within(decision.stable_pods);
        if self.panic_since_ms.is_some() {
            self.panic_held = self
                .panic_held
                .max(desired)
                .max(within(decision.panic_pods));
            desired = self.panic_held;
        }
        decision.panic_held = self.panic_held;
        decision.undelayed = desired;
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

/// Equality with a value that settings give literally.
fn is(value: f64, literal: f64) -> bool {
    value.total_cmp(&literal).is_eq()
}

//! Knative's KPA reconciler: from a decision to the scale and the mode of an app, with scale to zero.

mod types;

use crate::decider::Status;
use crate::number;
use crate::settings::Settings;
pub use types::{Activity, Inputs, Mode, Outcome, Probe, Reason};

/// Time that an app may be activating beyond the progress deadline, milliseconds.
const ACTIVATION_MARGIN_MS: i64 = 30_000;
/// Delay of the next reconciliation of an app that became inactive in proxy mode, milliseconds.
const INACTIVE_PROXY_REQUEUE_MS: i64 = 3_000;
/// Minimum number of activators of an app.
const ACTIVATORS_MIN: i32 = 2;

/// The state of an app between reconciliations; Knative has it in the PodAutoscaler's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciler {
    /// The condition `Active`.
    pub activity: Activity,
    /// The reason of the condition.
    pub reason: Reason,
    /// Last transition of the condition: whole seconds, in milliseconds.
    pub since_ms: i64,
    /// Whether the app has had its initial scale.
    pub initialized: bool,
    /// The last known desired scale.
    pub desired: Option<i32>,
    /// The mode of the last reconciliation.
    pub mode: Option<Mode>,
    /// Time since which an activator is in the path: whole seconds, in milliseconds.
    pub activator_since_ms: Option<i64>,
}

/// The desired scale, and how to apply it.
struct Scale {
    desired: i32,
    applied: bool,
    requeue_ms: Option<i64>,
    probe: Probe,
}

impl Scale {
    fn of(desired: i32, applied: bool) -> Self {
        Self {
            desired,
            applied,
            requeue_ms: None,
            probe: Probe::NotNeeded,
        }
    }

    fn requeued(self, after_ms: i64) -> Self {
        Self {
            requeue_ms: Some(after_ms),
            ..self
        }
    }
}

impl Reconciler {
    /// The state of a new app.
    pub fn new(now_ms: i64) -> Self {
        Self {
            activity: Activity::Activating,
            reason: Reason::None,
            since_ms: whole_second(now_ms),
            initialized: false,
            desired: None,
            mode: None,
            activator_since_ms: None,
        }
    }

    /// Records whether an activator is in the path; to be called when every node has applied the mode.
    pub fn set_activator_in_path(&mut self, now_ms: i64, in_path: bool) {
        if in_path != self.activator_since_ms.is_some() {
            self.activator_since_ms = in_path.then(|| whole_second(now_ms));
        }
    }

    /// Reconciles the app once.
    pub fn reconcile(&mut self, settings: &Settings, inputs: &Inputs) -> Outcome {
        let scale = match inputs.status {
            Some(status) => self.scale(settings, inputs, status),
            None => Scale::of(-1, false),
        };
        let (ready, excess) = match inputs.status {
            Some(status) => (inputs.ready, status.excess_burst_capacity),
            None => (0, -1),
        };
        let mode = if scale.desired > 0 && excess >= 0 {
            Mode::Serve
        } else {
            Mode::Proxy
        };
        self.mode = Some(mode);
        if scale.desired >= 0 || self.desired.is_none() {
            self.desired = Some(scale.desired);
        }
        self.update_activity(settings, inputs, scale.desired, ready);
        let activators = match inputs.status {
            Some(_) => activators(
                ready,
                settings.total_value(),
                settings.target_burst_capacity,
                settings.activator_capacity,
            ),
            None => ACTIVATORS_MIN,
        };
        Outcome {
            desired: scale.desired,
            applied: scale.applied,
            mode,
            activators,
            requeue_ms: scale.requeue_ms,
            probe: scale.probe,
        }
    }

    fn scale(&self, settings: &Settings, inputs: &Inputs, status: Status) -> Scale {
        if status.desired < 0 && self.activity != Activity::Activating {
            return Scale::of(status.desired, false);
        }
        match self.apply_bounds(settings, status.desired) {
            0 if !settings.enable_scale_to_zero => Scale::of(1, true),
            0 => match self.activity {
                Activity::Activating => self.while_activating(settings, inputs),
                Activity::Active => self.while_active(settings, inputs),
                Activity::Inactive => self.while_inactive(settings, inputs),
            },
            desired => Scale::of(desired, true),
        }
    }

    fn apply_bounds(&self, settings: &Settings, desired: i32) -> i32 {
        let starting = settings.initial_scale > 1 && !self.initialized && settings.reachable;
        let floor = if starting {
            settings.floor().max(settings.initial_scale)
        } else {
            settings.floor()
        };
        if desired < floor {
            floor
        } else if settings.max_scale > 0 {
            desired.min(settings.max_scale)
        } else {
            desired
        }
    }

    /// Scale 0 is desired while the app is activating: it is applied after the activation timed out.
    fn while_activating(&self, settings: &Settings, inputs: &Inputs) -> Scale {
        let timeout_ms = settings.progress_deadline_ms + ACTIVATION_MARGIN_MS;
        if inputs.now_ms - self.since_ms > timeout_ms {
            Scale::of(0, true)
        } else {
            Scale::of(-1, false).requeued(timeout_ms)
        }
    }

    /// Scale 0 is desired while the app is active: it becomes inactive after the stable window; the pod stays.
    fn while_active(&self, settings: &Settings, inputs: &Inputs) -> Scale {
        let window_ms = i64::from(settings.stable_window_s) * 1_000;
        let active_ms = inputs.now_ms - self.since_ms;
        if active_ms < window_ms {
            return Scale::of(1, true).requeued(window_ms - active_ms);
        }
        let inactive = Scale::of(0, false);
        if self.mode == Some(Mode::Proxy) {
            inactive.requeued(INACTIVE_PROXY_REQUEUE_MS)
        } else {
            inactive
        }
    }

    /// Scale 0 is desired while the app is inactive: it is applied when an activator is in the path, after the grace
    /// period and the retention.
    fn while_inactive(&self, settings: &Settings, inputs: &Inputs) -> Scale {
        let probe = match (settings.scraped(), inputs.activator_in_path) {
            (false, _) => Probe::NotNeeded,
            (true, true) => Probe::Passed,
            (true, false) => {
                return Scale {
                    probe: Probe::Failed,
                    ..Scale::of(0, false)
                };
            }
        };
        let grace_ms = settings.scale_to_zero_grace_ms;
        let retention_ms = settings.retention_ms();
        let inactive_ms = inputs.now_ms - self.since_ms;
        let activator_ms = self
            .activator_since_ms
            .map_or(0, |since| inputs.now_ms - since);
        let scale = if inactive_ms >= grace_ms.max(retention_ms) {
            Scale::of(0, true)
        } else if inactive_ms < retention_ms {
            Scale::of(0, false).requeued(retention_ms - inactive_ms)
        } else if activator_ms >= grace_ms {
            Scale::of(0, true)
        } else {
            Scale::of(0, false).requeued(grace_ms - activator_ms)
        };
        Scale { probe, ..scale }
    }

    /// Updates the condition `Active`.
    fn update_activity(&mut self, settings: &Settings, inputs: &Inputs, desired: i32, ready: i32) {
        let first = if self.initialized {
            1
        } else {
            settings.initial_scale
        };
        let needed = settings.floor().max(first);
        if ready >= needed && inputs.status.is_some() {
            self.initialized = true;
        }
        let stays = desired > 0 || self.activity != Activity::Inactive;
        let (activity, reason) = if desired == 0 || needed == 0 {
            let timed_out = self.activity == Activity::Activating && needed != 0;
            (
                Activity::Inactive,
                if timed_out {
                    Reason::TimedOut
                } else {
                    Reason::NoTraffic
                },
            )
        } else if ready < needed {
            if stays {
                (Activity::Activating, Reason::Queued)
            } else {
                (Activity::Inactive, Reason::NoTraffic)
            }
        } else if stays {
            (Activity::Active, Reason::None)
        } else {
            (self.activity, self.reason)
        };
        if (activity, reason) != (self.activity, self.reason) {
            (self.activity, self.reason, self.since_ms) =
                (activity, reason, whole_second(inputs.now_ms));
        }
    }
}

/// Number of activators of an app.
pub fn activators(
    ready: i32,
    total_value: f64,
    target_burst_capacity: f64,
    activator_capacity: f64,
) -> i32 {
    if target_burst_capacity.total_cmp(&0.0).is_eq() {
        return ACTIVATORS_MIN;
    }
    let load = f64::from(ready) * total_value + target_burst_capacity.max(0.0);
    number::ceil(load / activator_capacity).max(ACTIVATORS_MIN)
}

fn whole_second(ms: i64) -> i64 {
    number::second(ms) * 1_000
}

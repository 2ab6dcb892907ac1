//! From a decision to an app's scale and mode: when it falls asleep, what it waits for, who is in the path.

mod words;

use crate::decider::Status;
use crate::number;
use crate::settings::Settings;
pub use words::{Activity, Mode, Outcome, Probe, Reason, World};

/// How long beyond the progress deadline an app may be activating, milliseconds.
const ACTIVATION_MARGIN_MS: i64 = 30_000;
/// How soon an app that has just become idle in proxy mode is looked at again, milliseconds.
const IDLE_PROXY_REQUEUE_MS: i64 = 3_000;
/// The least number of activators behind an app.
const ACTIVATORS_MIN: i32 = 2;

/// What is remembered of an app between reconciliations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciler {
    /// Whether the app takes traffic.
    pub activity: Activity,
    /// Why not.
    pub reason: Reason,
    /// Since when both hold: whole seconds, in milliseconds.
    pub since_ms: i64,
    /// Whether it once had the pods it was first meant to have.
    pub initialized: bool,
    /// The last scale that was known.
    pub desired: Option<i32>,
    /// Who was last put in the path.
    pub mode: Option<Mode>,
    /// Since when an activator is in the path: whole seconds, in milliseconds.
    pub activator_since_ms: Option<i64>,
}

/// One scale with what follows from it.
struct Scale {
    want: i32,
    applied: bool,
    requeue_ms: Option<i64>,
    probe: Probe,
}

impl Scale {
    fn of(want: i32, applied: bool) -> Self {
        Self {
            want,
            applied,
            requeue_ms: None,
            probe: Probe::Unneeded,
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
    /// A new app.
    pub fn new(now_ms: i64) -> Self {
        Self {
            activity: Activity::Activating,
            reason: Reason::None,
            since_ms: whole(now_ms),
            initialized: false,
            desired: None,
            mode: None,
            activator_since_ms: None,
        }
    }

    /// Notes who is in the path, once every node knows.
    pub fn backed(&mut self, now_ms: i64, by_activator: bool) {
        if by_activator != self.activator_since_ms.is_some() {
            self.activator_since_ms = by_activator.then(|| whole(now_ms));
        }
    }

    /// Looks at the app and says what is to be done.
    pub fn reconcile(&mut self, settings: &Settings, world: &World) -> Outcome {
        let scale = match world.status {
            Some(status) => self.scale(settings, world, status),
            None => Scale::of(-1, false),
        };
        let (ready, excess) = match world.status {
            Some(status) => (world.ready, status.excess_burst_capacity),
            None => (0, -1),
        };
        let mode = if scale.want > 0 && excess >= 0 {
            Mode::Serve
        } else {
            Mode::Proxy
        };
        self.mode = Some(mode);
        if scale.want >= 0 || self.desired.is_none() {
            self.desired = Some(scale.want);
        }
        self.judge(settings, world, scale.want, ready);
        let activators = match world.status {
            Some(_) => activators(
                ready,
                settings.total_value(),
                settings.target_burst_capacity,
                settings.activator_capacity,
            ),
            None => ACTIVATORS_MIN,
        };
        Outcome {
            want: scale.want,
            applied: scale.applied,
            mode,
            activators,
            requeue_ms: scale.requeue_ms,
            probe: scale.probe,
        }
    }

    fn scale(&self, settings: &Settings, world: &World, status: Status) -> Scale {
        if status.desired < 0 && self.activity != Activity::Activating {
            return Scale::of(status.desired, false);
        }
        match self.bounded(settings, status.desired) {
            0 if !settings.enable_scale_to_zero => Scale::of(1, true),
            0 => match self.activity {
                Activity::Activating => self.give_up(settings, world),
                Activity::Active => self.fall_idle(settings, world),
                Activity::Inactive => self.fall_asleep(settings, world),
            },
            desired => Scale::of(desired, true),
        }
    }

    fn bounded(&self, settings: &Settings, desired: i32) -> i32 {
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

    /// Nothing is asked for while pods are still on their way.
    fn give_up(&self, settings: &Settings, world: &World) -> Scale {
        let patience_ms = settings.progress_deadline_ms + ACTIVATION_MARGIN_MS;
        if world.now_ms - self.since_ms > patience_ms {
            Scale::of(0, true)
        } else {
            Scale::of(-1, false).requeued(patience_ms)
        }
    }

    /// Nothing is asked of an active app: it becomes inactive after the stable window, and keeps its pod for now.
    fn fall_idle(&self, settings: &Settings, world: &World) -> Scale {
        let window_ms = i64::from(settings.stable_window_s) * 1_000;
        let active_ms = world.now_ms - self.since_ms;
        if active_ms < window_ms {
            return Scale::of(1, true).requeued(window_ms - active_ms);
        }
        let idle = Scale::of(0, false);
        if self.mode == Some(Mode::Proxy) {
            idle.requeued(IDLE_PROXY_REQUEUE_MS)
        } else {
            idle
        }
    }

    /// An inactive app loses its last pod once an activator is known to be in the path for long enough.
    fn fall_asleep(&self, settings: &Settings, world: &World) -> Scale {
        let probe = match (settings.scraped(), world.activator_met) {
            (false, _) => Probe::Unneeded,
            (true, true) => Probe::Met,
            (true, false) => {
                return Scale {
                    probe: Probe::Missed,
                    ..Scale::of(0, false)
                };
            }
        };
        let grace_ms = settings.scale_to_zero_grace_ms;
        let retention_ms = if settings.reachable {
            settings.pod_retention_ms
        } else {
            0
        };
        let inactive_ms = world.now_ms - self.since_ms;
        let backed_ms = self
            .activator_since_ms
            .map_or(0, |since| world.now_ms - since);
        let scale = if inactive_ms >= grace_ms.max(retention_ms) {
            Scale::of(0, true)
        } else if inactive_ms < retention_ms {
            Scale::of(0, false).requeued(retention_ms - inactive_ms)
        } else if backed_ms >= grace_ms {
            Scale::of(0, true)
        } else {
            Scale::of(0, false).requeued(grace_ms - backed_ms)
        };
        Scale { probe, ..scale }
    }

    /// Whether the app takes traffic after this.
    fn judge(&mut self, settings: &Settings, world: &World, want: i32, ready: i32) {
        let first = if self.initialized {
            1
        } else {
            settings.initial_scale
        };
        let needed = settings.floor().max(first);
        if ready >= needed && world.status.is_some() {
            self.initialized = true;
        }
        let stays = want > 0 || self.activity != Activity::Inactive;
        let (activity, reason) = if want == 0 || needed == 0 {
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
            (self.activity, self.reason, self.since_ms) = (activity, reason, whole(world.now_ms));
        }
    }
}

/// How many activators stand in for an app.
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

fn whole(ms: i64) -> i64 {
    number::second(ms) * 1_000
}

//! The metrics of apps. No label contains an app, so the number of series does not grow with the apps.

use std::time::Duration;

use dormouse_cluster::{Mode, State};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::admission::Scope;
use crate::decisions::Why;
use crate::record::AppRecord;
use crate::wake::{Outcome, Wake};

/// From 0.1 ms to about 100 s.
const WAKE_BUCKETS: u16 = 20;
/// From 1 µs to about 0.26 s.
const LOCK_BUCKETS: u16 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    pub(crate) state: StateValue,
}

/// The label of an app's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
pub(crate) enum StateValue {
    asleep,
    waking,
    awake,
}

impl From<State> for StateValue {
    fn from(state: State) -> Self {
        match state {
            State::Asleep => Self::asleep,
            State::Waking => Self::waking,
            State::Awake => Self::awake,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ModeLabel {
    pub(crate) mode: ModeValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FlipLabel {
    pub(crate) to: ModeValue,
}

/// The label of an app's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
pub(crate) enum ModeValue {
    proxy,
    serve,
}

impl From<Mode> for ModeValue {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Proxy => Self::proxy,
            Mode::Serve => Self::serve,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabel {
    direction: Direction,
    window: WindowValue,
    reason: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
enum Direction {
    up,
    down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
enum WindowValue {
    stable,
    panic,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// The labels of a sleeping app.
pub(crate) const ASLEEP: (StateValue, ModeValue) = (StateValue::asleep, ModeValue::proxy);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: LimitValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
enum LimitValue {
    app,
    tenant,
    all,
}

impl From<Scope> for LimitValue {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::App => Self::app,
            Scope::Tenant => Self::tenant,
            Scope::All => Self::all,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabel {
    shard: u64,
}

/// The metrics of one shard: which of them has too much to do.
#[derive(Debug, Clone)]
pub(crate) struct ShardMetrics {
    queued: Gauge,
    held: Histogram,
}

impl ShardMetrics {
    /// An event held the shard's lock for this time, and so many wait for it.
    pub(crate) fn handled(&self, held: Duration, queued: usize) {
        self.held.observe(held.as_secs_f64());
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
    }
}

/// The metrics of apps.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) apps: Family<StateLabel, Gauge>,
    pub(crate) modes: Family<ModeLabel, Gauge>,
    flips: Family<FlipLabel, Counter>,
    decisions: Family<DecisionLabel, Counter>,
    wakes: Family<OutcomeLabel, Counter>,
    stages: Family<StageLabel, Histogram>,
    delayed: Family<LimitLabel, Counter>,
    /// Wakes that wait for a rate.
    pub(crate) waiting: Gauge,
    /// 1 while the ConfigMap of the autoscaler is not valid.
    pub(crate) config_invalid: Gauge,
    held: Family<LimitLabel, Counter>,
    queued: Family<ShardLabel, Gauge>,
    locked: Family<ShardLabel, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            apps: Family::default(),
            modes: Family::default(),
            flips: Family::default(),
            decisions: Family::default(),
            wakes: Family::default(),
            stages: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1e-4, 2.0, WAKE_BUCKETS))
            }),
            delayed: Family::default(),
            waiting: Gauge::default(),
            config_invalid: Gauge::default(),
            held: Family::default(),
            queued: Family::default(),
            locked: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1e-6, 4.0, LOCK_BUCKETS))
            }),
        }
    }
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("dormouse_apps", "Apps by state", self.apps.clone());
        registry.register(
            "dormouse_apps_mode",
            "Apps by the mode of their VIP: proxy (to the activator) or serve (to pods)",
            self.modes.clone(),
        );
        registry.register(
            "dormouse_mode_flips",
            "Changes of apps' modes, by the new mode",
            self.flips.clone(),
        );
        registry.register(
            "dormouse_scale_decisions",
            "Changes of the wanted number of pods, by direction, window and reason",
            self.decisions.clone(),
        );
        registry.register(
            "dormouse_wakes",
            "Wakes by outcome: answered; failed, timed out, abandoned by all clients or refused by a limit before a response",
            self.wakes.clone(),
        );
        registry.register(
            "dormouse_wake_duration_seconds",
            "Duration of each stage of a wake, and of the whole wake",
            self.stages.clone(),
        );
        registry.register(
            "dormouse_wakes_delayed",
            "Wakes that waited for the rate of their tenant or for that of all",
            self.delayed.clone(),
        );
        registry.register(
            "dormouse_wakes_waiting",
            "Wakes that wait for a rate",
            self.waiting.clone(),
        );
        registry.register(
            "dormouse_pods_limited",
            "Times that an app began to have fewer pods than the autoscaler wants, by the limit",
            self.held.clone(),
        );
        registry.register(
            "dormouse_autoscaler_config_invalid",
            "1 while the ConfigMap config-autoscaler is not valid and the settings before it are in force, else 0",
            self.config_invalid.clone(),
        );
        registry.register(
            "dormouse_apps_shard_queued",
            "Events that wait for a shard of the apps",
            self.queued.clone(),
        );
        registry.register(
            "dormouse_apps_shard_event_seconds",
            "Time for which an event held the lock of its shard of the apps; the sum is the time in which the shard decided",
            self.locked.clone(),
        );
    }

    /// The metrics of one shard.
    pub(crate) fn of_shard(&self, shard: usize) -> ShardMetrics {
        let label = ShardLabel {
            shard: shard as u64,
        };
        ShardMetrics {
            queued: self.queued.get_or_create(&label).clone(),
            held: self.locked.get_or_create(&label).clone(),
        }
    }

    /// Counts a wake that must wait.
    pub(crate) fn delayed(&self, limit: Scope) {
        let limit = limit.into();
        self.delayed.get_or_create(&LimitLabel { limit }).inc();
    }

    /// Counts an app that a limit begins to hold.
    pub(crate) fn held(&self, limit: Scope) {
        let limit = limit.into();
        self.held.get_or_create(&LimitLabel { limit }).inc();
    }

    /// Counts a change of the wanted number of pods, if there was one since the last call.
    pub(crate) fn decided(&self, record: &mut AppRecord) {
        let before = std::mem::replace(&mut record.want_counted, record.want);
        let direction = match record.want.max(0).cmp(&before.max(0)) {
            std::cmp::Ordering::Greater => Direction::up,
            std::cmp::Ordering::Less => Direction::down,
            std::cmp::Ordering::Equal => return,
        };
        let decision = record.decision.as_ref();
        let panic = decision.is_some_and(|decision| decision.panic_since_ms.is_some());
        let window = if panic {
            WindowValue::panic
        } else {
            WindowValue::stable
        };
        let label = DecisionLabel {
            direction,
            window,
            reason: Why::of(record).name(),
        };
        self.decisions.get_or_create(&label).inc();
    }

    /// Counts a wake that has ended.
    pub(crate) fn wake_ended(&self, outcome: Outcome) {
        let label = OutcomeLabel { outcome };
        self.wakes.get_or_create(&label).inc();
    }

    /// Counts a wake whose end was not known before its app fell asleep.
    pub(crate) fn wake_over(&self, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.wake_ended(outcome);
        }
    }

    /// Counts a wake whose first response has begun.
    pub(crate) fn woken(&self, wake: &Wake) {
        self.wake_ended(Outcome::answered);
        for (name, ms) in wake.durations() {
            let stage = if name == "first byte" {
                "release"
            } else {
                name
            };
            self.stages
                .get_or_create(&StageLabel { stage })
                .observe((ms / 1e3).max(0.0));
        }
        if let Some(last) = wake.stages().last() {
            self.stages
                .get_or_create(&StageLabel { stage: "total" })
                .observe(last.ms / 1e3);
        }
    }

    /// Counts a change of an app's state or mode.
    pub(crate) fn moved(
        &self,
        before: Option<(StateValue, ModeValue)>,
        after: Option<(StateValue, ModeValue)>,
    ) {
        if before == after {
            return;
        }
        if let (Some((_, from)), Some((_, to))) = (before, after)
            && from != to
        {
            self.flips.get_or_create(&FlipLabel { to }).inc();
        }
        for (place, step) in [(before, -1), (after, 1)] {
            if let Some((state, mode)) = place {
                self.apps.get_or_create(&StateLabel { state }).inc_by(step);
                self.modes.get_or_create(&ModeLabel { mode }).inc_by(step);
            }
        }
    }
}

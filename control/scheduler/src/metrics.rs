//! The scheduler's metrics: kube-scheduler's names where the meaning is the same.

pub(crate) mod members;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::queue::{Lane, Lengths};
use crate::state::{Attempt, Outcome, Reason, Rejection, State};

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
enum Decided {
    scheduled,
    unschedulable,
    error,
}

/// A result, and the profile, of which there are as many as the configuration has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempted {
    result: Decided,
    profile: String,
}

/// The number of attempts that a pod took; 15 and more are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempts {
    attempts: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
enum QueueValue {
    active,
    backoff,
    unschedulable,
    gated,
}

/// What became of a review of the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the labels' values")]
pub(crate) enum Reviewed {
    /// Its pod was announced to the scheduler.
    announced,
    /// It creates no pod, or is a dry run.
    ignored,
    /// Its pod comes by the watch alone: the scheduler has not taken the former ones yet.
    dropped,
    /// It was answered with an error.
    refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    outcome: Reviewed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pending {
    queue: QueueValue,
}

/// A queue, and what brought a pod there: one of the events that plugins register for, or of the queue's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Incoming {
    queue: QueueValue,
    event: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cached {
    r#type: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    attempts: Family<Attempted, Counter>,
    attempt_durations: Histograms<Attempted>,
    algorithm_duration: Histogram,
    decision_duration: Histogram,
    reviews: Family<Review, Counter>,
    events_dropped: Counter,
    sli_durations: Histograms<Attempts>,
    attempts_per_pod: Histogram,
    pending: Family<Pending, Gauge>,
    incoming: Family<Incoming, Counter>,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    cached: Family<Cached, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let from_milli: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let from_10_milli: fn() -> Histogram =
            || Histogram::new(exponential_buckets(0.01, 2.0, 20));
        Self {
            attempts: Family::default(),
            attempt_durations: Family::new_with_constructor(from_milli),
            algorithm_duration: from_milli(),
            decision_duration: Histogram::new(exponential_buckets(1e-6, 2.0, 22)),
            reviews: Family::default(),
            events_dropped: Counter::default(),
            sli_durations: Family::new_with_constructor(from_10_milli),
            attempts_per_pod: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            incoming: Family::default(),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            cached: Family::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("dormouse");
        own.register(
            "decision_duration_seconds",
            "Latency of one decision, without any write",
            self.decision_duration.clone(),
        );
        own.register(
            "admission_reviews",
            "Reviews that the webhook has received",
            self.reviews.clone(),
        );
        own.register(
            "scheduling_events_dropped",
            "Events about pods that were not recorded: too many waited",
            self.events_dropped.clone(),
        );
        let kube = registry.sub_registry_with_prefix("scheduler");
        kube.register(
            "schedule_attempts",
            "Attempts to schedule pods, by the result; pods that plugins rejected are unschedulable",
            self.attempts.clone(),
        );
        kube.register(
            "scheduling_attempt_duration_seconds",
            "Latency of an attempt: decision and binding",
            self.attempt_durations.clone(),
        );
        kube.register(
            "scheduling_algorithm_duration_seconds",
            "Latency of the decision",
            self.algorithm_duration.clone(),
        );
        kube.register(
            "pod_scheduling_sli_duration_seconds",
            "Time from a pod's first attempt until it is bound",
            self.sli_durations.clone(),
        );
        kube.register(
            "pod_scheduling_attempts",
            "Attempts until a pod was bound",
            self.attempts_per_pod.clone(),
        );
        self.register_queue(kube);
    }

    fn register_queue(&self, kube: &mut Registry) {
        kube.register(
            "pending_pods",
            "Pods that wait, by the part of the queue",
            self.pending.clone(),
        );
        kube.register(
            "queue_incoming_pods",
            "Pods that were added to parts of the queue, by the event",
            self.incoming.clone(),
        );
        kube.register(
            "preemption_attempts",
            "Preemptions of pods for a pod",
            self.preemption_attempts.clone(),
        );
        kube.register(
            "preemption_victims",
            "Pods that one preemption evicts",
            self.preemption_victims.clone(),
        );
        kube.register(
            "cache_size",
            "Nodes, pods and assumed pods that the scheduler knows",
            self.cached.clone(),
        );
    }

    /// A review of the webhook was answered.
    pub(crate) fn reviewed(&self, outcome: Reviewed) {
        self.reviews.get_or_create(&Review { outcome }).inc();
    }

    /// An event was not recorded.
    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// A decision took this long.
    pub(crate) fn decided(&self, took: Duration) {
        self.algorithm_duration.observe(took.as_secs_f64());
        self.decision_duration.observe(took.as_secs_f64());
    }

    /// A pod got no node.
    pub(crate) fn rejected(&self, attempt: &Attempt, rejection: &Rejection, took: Duration) {
        let result = match rejection.reason {
            Reason::SchedulerError => Decided::error,
            Reason::Unschedulable => Decided::unschedulable,
            Reason::SchedulingGated => return,
        };
        self.attempted(attempt, result, took);
        if let Some(eviction) = &rejection.eviction {
            self.preemption_attempts.inc();
            self.preemption_victims
                .observe(eviction.victims.len() as f64);
        }
    }

    /// A binding was written, or not.
    pub(crate) fn written(
        &self,
        attempt: &Attempt,
        outcome: Outcome,
        took: Duration,
        now: Timestamp,
    ) {
        if outcome != Outcome::Bound {
            self.attempted(attempt, Decided::error, took);
            return;
        }
        self.attempted(attempt, Decided::scheduled, took);
        self.attempts_per_pod.observe(f64::from(attempt.number()));
        let attempts = match attempt.number() {
            15.. => "15+".to_owned(),
            number => number.to_string(),
        };
        let since = attempt
            .first_at()
            .map_or(0.0, |first| now.duration_since(first).as_secs_f64());
        let label = Attempts { attempts };
        self.sli_durations.get_or_create(&label).observe(since);
    }

    fn attempted(&self, attempt: &Attempt, result: Decided, took: Duration) {
        let label = Attempted {
            result,
            profile: attempt.scheduler().to_owned(),
        };
        self.attempts.get_or_create(&label).inc();
        let took = took.as_secs_f64();
        self.attempt_durations.get_or_create(&label).observe(took);
    }

    /// Takes over what the state counts.
    pub(crate) fn follow(&self, state: &mut State) {
        let Lengths {
            active,
            backoff,
            unschedulable,
            gated,
        } = state.lengths();
        let lanes = [
            (QueueValue::active, active),
            (QueueValue::backoff, backoff),
            (QueueValue::unschedulable, unschedulable),
            (QueueValue::gated, gated),
        ];
        for (queue, len) in lanes {
            let gauge = self.pending.get_or_create(&Pending { queue });
            gauge.set(i64::try_from(len).unwrap_or(i64::MAX));
        }
        for ((lane, event), count) in state.take_moves() {
            let queue = lane.into();
            let label = Incoming { queue, event };
            self.incoming.get_or_create(&label).inc_by(count);
        }
        for (r#type, len) in state.sizes() {
            let gauge = self.cached.get_or_create(&Cached { r#type });
            gauge.set(i64::try_from(len).unwrap_or(i64::MAX));
        }
    }
}

impl From<Lane> for QueueValue {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Active => Self::active,
            Lane::Backoff => Self::backoff,
            Lane::Unschedulable => Self::unschedulable,
            Lane::Gated => Self::gated,
        }
    }
}

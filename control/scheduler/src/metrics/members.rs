//! The metrics of a member of the sharded scheduler.

use std::time::Duration;

use dormouse_scheduler_shard::{Seen, View};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::shards::Role;

/// The metrics; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    sent: Counter,
    sent_bytes: Counter,
    received: Counter,
    received_bytes: Counter,
    dropped: Counter,
    refused: Counter,
    nodes: Gauge,
    handled: Histogram,
    inexact: Counter,
    repeated: Counter,
    views: Counter,
    shards: Gauge,
    relays: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            sent: Counter::default(),
            sent_bytes: Counter::default(),
            received: Counter::default(),
            received_bytes: Counter::default(),
            dropped: Counter::default(),
            refused: Counter::default(),
            nodes: Gauge::default(),
            handled: Histogram::new(exponential_buckets(1e-6, 2.0, 22)),
            inexact: Counter::default(),
            repeated: Counter::default(),
            views: Counter::default(),
            shards: Gauge::default(),
            relays: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Those of a shard or a relay.
    pub fn registered(role: Role, registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        if role == Role::Shard {
            metrics.register_shard(registry);
        }
        metrics
    }

    /// Adds those that each member has.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("dormouse_scheduler_member");
        own.register(
            "sent_messages",
            "Messages queued for other members",
            self.sent.clone(),
        );
        own.register(
            "sent_bytes",
            "Bytes of messages queued for other members",
            self.sent_bytes.clone(),
        );
        own.register(
            "received_messages",
            "Messages of other members",
            self.received.clone(),
        );
        own.register(
            "received_bytes",
            "Bytes of messages of other members",
            self.received_bytes.clone(),
        );
        own.register(
            "dropped_messages",
            "Messages that were dropped because their member could not be reached; they are sent again",
            self.dropped.clone(),
        );
        own.register(
            "refused_streams",
            "Streams of other members that broke, were for another member, or had frames that could not be decoded",
            self.refused.clone(),
        );
        own.register(
            "message_duration_seconds",
            "Time in which a message was handled",
            self.handled.clone(),
        );
    }

    fn register_shard(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("dormouse_scheduler_shard");
        own.register("nodes", "Nodes of the shard", self.nodes.clone());
    }

    /// Adds those of the leader.
    pub(crate) fn register_leader(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("dormouse_scheduler_shards");
        own.register(
            "inexact_decisions",
            "Decisions without the answers of all shards, since some exceeded the straggler timeout",
            self.inexact.clone(),
        );
        own.register(
            "repeated_attempts",
            "Attempts that were begun again, after a conflict, a timeout or a change of members",
            self.repeated.clone(),
        );
        own.register(
            "views",
            "Changes of the members that take part",
            self.views.clone(),
        );
        own.register("registered", "Shards that take part", self.shards.clone());
        own.register(
            "relays_registered",
            "Relays that take part",
            self.relays.clone(),
        );
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.inc();
        self.sent_bytes.inc_by(count(bytes));
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.inc();
        self.received_bytes.inc_by(count(bytes));
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn nodes(&self, len: usize) {
        self.nodes.set(level(len));
    }

    pub(crate) fn handled(&self, took: Duration) {
        self.handled.observe(took.as_secs_f64());
    }

    /// Takes over what the leader counts.
    pub(crate) fn follow(&self, seen: Seen, view: &View) {
        self.shards.set(level(view.shards.len()));
        self.relays.set(level(view.relays.len()));
        for (counter, total) in [
            (&self.inexact, seen.inexact),
            (&self.repeated, seen.repeated),
            (&self.views, seen.views),
        ] {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn level(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

//! Metrics of the store, under the names that etcd's dashboards and alerts use.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// The store's metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) puts: Counter,
    pub(crate) deletes: Counter,
    pub(crate) ranges: Counter,
    pub(crate) txns: Counter,
    pub(crate) keys: Gauge,
    pub(crate) revision: Gauge,
    pub(crate) watchers: Gauge,
    compaction_lock_max: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Records the time for which a compaction, or a slice of it, held the lock.
    pub(crate) fn compaction_held_lock(&self, time: Duration) {
        // The bits of floats that are not negative have the order of the floats.
        let bits = time.as_secs_f64().to_bits();
        self.compaction_lock_max
            .inner()
            .fetch_max(bits, Ordering::Relaxed);
    }

    /// Registers the metrics under etcd's names; the text format appends `_total` to counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counters = [
            ("etcd_mvcc_put", "Put requests", &self.puts),
            ("etcd_mvcc_delete", "Delete requests", &self.deletes),
            ("etcd_mvcc_range", "Range requests", &self.ranges),
            ("etcd_mvcc_txn", "Transactions", &self.txns),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let gauges = [
            (
                "etcd_debugging_mvcc_keys_total",
                "Keys in the keyspace",
                &self.keys,
            ),
            (
                "etcd_debugging_mvcc_current_revision",
                "Current revision of the store",
                &self.revision,
            ),
            (
                "etcd_debugging_mvcc_watcher_total",
                "Watchers",
                &self.watchers,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "dormouse_store_compaction_lock_seconds_max",
            "Longest time for which a compaction delayed other requests",
            self.compaction_lock_max.clone(),
        );
    }
}

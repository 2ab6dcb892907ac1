//! The few counters of etcd's that dashboards and alerts know by name.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// What the store counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) puts: Counter,
    pub(crate) deletes: Counter,
    pub(crate) ranges: Counter,
    pub(crate) txns: Counter,
    pub(crate) keys: Gauge,
    pub(crate) revision: Gauge,
    pub(crate) watchers: Gauge,
}

impl Metrics {
    /// Adds the counters under etcd's names; the text format appends `_total` to counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counters = [
            ("etcd_mvcc_put", "Puts", &self.puts),
            ("etcd_mvcc_delete", "Deletes", &self.deletes),
            ("etcd_mvcc_range", "Reads of a range", &self.ranges),
            ("etcd_mvcc_txn", "Transactions", &self.txns),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let gauges = [
            (
                "etcd_debugging_mvcc_keys_total",
                "Keys that exist",
                &self.keys,
            ),
            (
                "etcd_debugging_mvcc_current_revision",
                "Revision of the last change",
                &self.revision,
            ),
            (
                "etcd_debugging_mvcc_watcher_total",
                "Watches",
                &self.watchers,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }
}

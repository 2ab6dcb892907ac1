//! Metrics of the store, under the names that etcd's dashboards and alerts use.

mod calls;
mod disk;
mod process;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

pub(crate) use calls::Call;
use calls::Calls;
pub(crate) use disk::Disk;
use process::Process;

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
    /// Watchers whose events were compacted before they read them.
    pub(crate) watchers_lost: Counter,
    pub(crate) compactions: Counter,
    pub(crate) leases_granted: Counter,
    pub(crate) leases_revoked: Counter,
    pub(crate) leases_renewed: Counter,
    pub(crate) leases_expired: Counter,
    /// Writes that were refused or not acknowledged since the journal failed.
    pub(crate) writes_failed: Counter,
    pub(crate) calls: Calls,
    /// Empty without a data directory.
    disk: OnceLock<Disk>,
    compaction_lock_max: Gauge<f64, AtomicU64>,
    compaction_lock_cpu_max: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Adds the metrics of the data directory, once.
    pub(crate) fn measure_disk(&self, disk: Disk) {
        // A store opens one directory.
        let _ = self.disk.set(disk);
    }

    /// Records the time for which a compaction, or a slice of it, held the lock, and the part of it in
    /// which its thread ran.
    pub(crate) fn compaction_held_lock(&self, time: Duration, cpu: Duration) {
        raise(&self.compaction_lock_max, time);
        raise(&self.compaction_lock_cpu_max, cpu);
    }

    /// Registers the metrics under etcd's names; the text format appends `_total` to counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.register_counters(registry);
        self.register_gauges(registry);
        self.calls.register(registry);
        if let Some(disk) = self.disk.get() {
            disk.register(registry);
        }
        registry.register_collector(Box::new(Process));
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            ("etcd_mvcc_put", "Put requests", &self.puts),
            ("etcd_mvcc_delete", "Delete requests", &self.deletes),
            ("etcd_mvcc_range", "Range requests", &self.ranges),
            ("etcd_mvcc_txn", "Transactions", &self.txns),
            (
                "dormouse_store_watchers_lost",
                "Watchers canceled since they were slower than a compaction",
                &self.watchers_lost,
            ),
            (
                "dormouse_store_compactions",
                "Compactions",
                &self.compactions,
            ),
            (
                "etcd_debugging_lease_granted",
                "Leases granted",
                &self.leases_granted,
            ),
            (
                "etcd_debugging_lease_revoked",
                "Leases revoked, expired ones included",
                &self.leases_revoked,
            ),
            (
                "etcd_debugging_lease_renewed",
                "Leases renewed",
                &self.leases_renewed,
            ),
            (
                "etcd_debugging_server_lease_expired",
                "Leases expired",
                &self.leases_expired,
            ),
            (
                "etcd_server_proposals_failed",
                "Writes not acknowledged since the journal failed",
                &self.writes_failed,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_gauges(&self, registry: &mut Registry) {
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
        registry.register(
            "dormouse_store_compaction_lock_cpu_seconds_max",
            "The same without the time in which the kernel ran other threads",
            self.compaction_lock_cpu_max.clone(),
        );
    }
}

fn raise(seconds_max: &Gauge<f64, AtomicU64>, time: Duration) {
    // The bits of floats that are not negative have the order of the floats.
    let bits = time.as_secs_f64().to_bits();
    seconds_max.inner().fetch_max(bits, Ordering::Relaxed);
}

//! The sizes and the progress of the store, under the names of etcd's dashboards, read when the metrics
//! are encoded.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::{BASE_BYTES, Store};

/// Encodes the sizes and the progress of a store.
#[derive(Debug)]
pub(super) struct Sizes(pub(super) Store);

/// A name, its explanation and a number.
type Number = (&'static str, &'static str, i64);

impl Collector for Sizes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let numbers = self.sizes().into_iter().chain(self.progress());
        for (name, help, number) in numbers.chain(MEMBER) {
            let gauge = ConstGauge::new(number);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        self.kinds(&mut encoder)
    }
}

/// What is always so, as the store is the only member of its cluster.
const MEMBER: [Number; 3] = [
    (
        "etcd_server_has_leader",
        "Whether the server has a leader",
        1,
    ),
    (
        "etcd_server_is_leader",
        "Whether the server is the leader",
        1,
    ),
    (
        "etcd_server_is_learner",
        "Whether the server is a learner",
        0,
    ),
];

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Sizes {
    fn sizes(&self) -> [Number; 4] {
        let Self(store) = self;
        let snapshot = store
            .shared
            .snapshot_bytes
            .load(std::sync::atomic::Ordering::Relaxed);
        [
            (
                "etcd_mvcc_db_total_size_in_bytes",
                "Bytes that the store holds",
                number(store.bytes()),
            ),
            (
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Bytes that the store holds, without free slots",
                number(store.bytes_in_use()),
            ),
            (
                "etcd_server_quota_backend_bytes",
                "Bytes at which puts are refused",
                number(store.limits().quota_bytes),
            ),
            (
                "dormouse_store_snapshot_bytes",
                "Bytes of the last snapshot of this run",
                number(snapshot),
            ),
        ]
    }

    /// Revisions: of all writes, of those that clients see, and of compaction.
    fn progress(&self) -> [Number; 4] {
        let Self(store) = self;
        let (applied, compacted) = {
            let state = store.shared.state.read();
            (state.keyspace.current(), state.keyspace.compacted())
        };
        let visible = store.revision();
        [
            (
                "etcd_server_proposals_applied_total",
                "Revision of the last write that is applied",
                applied,
            ),
            (
                "etcd_server_proposals_committed_total",
                "Revision of the last write that is as durable as asked",
                visible,
            ),
            (
                "etcd_server_proposals_pending",
                "Applied revisions that are not yet as durable as asked",
                (applied - visible).max(0),
            ),
            (
                "etcd_debugging_mvcc_compact_revision",
                "The compacted revision",
                // Below 0 before the first compaction.
                compacted.max(0),
            ),
        ]
    }

    /// The held bytes by what they are for.
    fn kinds(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shared = &self.0.shared;
        let watches = shared.watchers.lock().bytes();
        let recent = shared.recent.read().bytes();
        let (keyspace, leases) = {
            let state = shared.state.read();
            (state.keyspace.held(), state.leases.bytes())
        };
        let kinds = [
            ("records", keyspace.records),
            ("index", keyspace.index),
            ("history", keyspace.history),
            ("leases", leases),
            ("watchers", watches),
            ("events", recent),
            ("base", BASE_BYTES),
        ];
        let (name, help) = (
            "dormouse_store_held_bytes",
            "Bytes that the store holds, by what they are for",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, bytes) in kinds {
            let gauge = ConstGauge::new(number(bytes));
            gauge.encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}

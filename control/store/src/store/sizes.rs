//! The sizes of the store, under the names of etcd's dashboards, read when the metrics are encoded.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};

use super::Store;

/// Encodes the sizes of a store.
#[derive(Debug)]
pub(super) struct Sizes(pub(super) Store);

impl Collector for Sizes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let bytes = self.0.bytes();
        let gauges = [
            (
                "etcd_mvcc_db_total_size_in_bytes",
                "Bytes that the store holds",
                bytes,
            ),
            (
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Bytes that the store holds, without free slots",
                self.0.bytes_in_use(),
            ),
            (
                "etcd_server_quota_backend_bytes",
                "Bytes at which puts are refused",
                self.0.limits().quota_bytes,
            ),
            (
                "etcd_server_has_leader",
                "Whether the server has a leader: always, as the only member",
                1,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

//! The limits of a store.

use std::time::Duration;

use super::unsent::UNSENT_BYTES_LEAST;
use crate::auth;

/// Bytes of a gRPC message beyond the largest write; etcd's `grpcOverheadBytes`.
const TRANSPORT_OVERHEAD_BYTES: usize = 512 << 10;

/// Limits of the store; the defaults are etcd's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of an encoded write; etcd's `--max-request-bytes`.
    pub request_bytes_max: usize,
    /// Entries of each list of a transaction; etcd's `--max-txn-ops`.
    pub txn_ops_max: usize,
    /// Bytes of all versions of all keys at which puts fail; etcd's `--quota-backend-bytes`.
    pub quota_bytes: u64,
    /// Bytes at which a segment of the journal is full. A snapshot is due when it makes as many
    /// superfluous.
    pub journal_segment_bytes: u64,
    /// Interval of progress notifications to idle watchers that requested them; etcd's
    /// `--watch-progress-notify-interval`.
    pub progress_interval: Duration,
    /// Options of users and logins.
    pub auth: auth::Options,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 1_536 << 10,
            txn_ops_max: 128,
            quota_bytes: 2 << 30,
            journal_segment_bytes: 64 << 20,
            progress_interval: Duration::from_mins(10),
            auth: auth::Options::default(),
        }
    }
}

impl Limits {
    /// Bytes of long lists that are not sent yet, above which further ones are refused: a fourth of the
    /// quota.
    pub(super) fn unsent_bytes_max(&self) -> u64 {
        (self.quota_bytes / 4).max(UNSENT_BYTES_LEAST)
    }

    /// Bytes of the largest message in either direction, except responses to reads.
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max
            .saturating_add(TRANSPORT_OVERHEAD_BYTES)
    }
}

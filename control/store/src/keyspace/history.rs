//! The version history of one key, oldest first.

use std::sync::Arc;

use super::{Revision, VERSION_OVERHEAD_BYTES, weight};
use crate::proto::mvccpb::KeyValue;

#[derive(Debug)]
struct Version {
    revision: Revision,
    /// `None` is a tombstone: this revision deleted the key.
    kv: Option<Arc<KeyValue>>,
}

impl Version {
    fn weight(&self) -> u64 {
        self.kv.as_deref().map_or(VERSION_OVERHEAD_BYTES, weight)
    }
}

/// The versions of one key; the last is the latest. Two versions of the same revision are a put and
/// a later delete of one transaction.
#[derive(Debug, Default)]
pub(super) struct History {
    versions: Vec<Version>,
}

impl History {
    pub(super) fn latest(&self) -> Option<&Arc<KeyValue>> {
        self.versions.last()?.kv.as_ref()
    }

    /// The key after all writes of `revision`.
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<KeyValue>> {
        let after = self
            .versions
            .partition_point(|version| version.revision <= revision);
        self.versions[..after].last()?.kv.as_ref()
    }

    /// Appends the latest version; returns the bytes it adds to the estimate.
    pub(super) fn push(&mut self, revision: Revision, kv: Option<Arc<KeyValue>>) -> u64 {
        let version = Version { revision, kv };
        let added = version.weight();
        self.versions.push(version);
        added
    }

    /// Drops the versions that no read at or above `revision` returns; returns the bytes freed.
    pub(super) fn compact(&mut self, revision: Revision) -> u64 {
        let after = self
            .versions
            .partition_point(|version| version.revision <= revision);
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let dropped = if self.versions[last].kv.is_none() {
            after
        } else {
            last
        };
        self.versions
            .drain(..dropped)
            .map(|version| version.weight())
            .sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}

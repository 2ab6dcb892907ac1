//! The versions of one key, oldest first.

use std::sync::Arc;

use super::{Revision, VERSION_OVERHEAD_BYTES, weight};
use crate::proto::mvccpb::KeyValue;

#[derive(Debug)]
struct Version {
    revision: Revision,
    /// None: the key was deleted here.
    kv: Option<Arc<KeyValue>>,
}

impl Version {
    fn weight(&self) -> u64 {
        self.kv.as_deref().map_or(VERSION_OVERHEAD_BYTES, weight)
    }
}

/// Versions of one key; the last is the newest. Two of one revision can only be a put and a later
/// delete in one transaction.
#[derive(Debug, Default)]
pub(super) struct History {
    versions: Vec<Version>,
}

impl History {
    pub(super) fn latest(&self) -> Option<&Arc<KeyValue>> {
        self.versions.last()?.kv.as_ref()
    }

    /// The key as it was after everything of `revision`.
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<KeyValue>> {
        let after = self
            .versions
            .partition_point(|version| version.revision <= revision);
        self.versions[..after].last()?.kv.as_ref()
    }

    /// Adds the newest version and returns its weight in bytes.
    pub(super) fn push(&mut self, revision: Revision, kv: Option<Arc<KeyValue>>) -> u64 {
        let version = Version { revision, kv };
        let added = version.weight();
        self.versions.push(version);
        added
    }

    /// Drops what no reader at or above `revision` sees; returns the bytes that this frees.
    pub(super) fn compact(&mut self, revision: Revision) -> u64 {
        let after = self
            .versions
            .partition_point(|version| version.revision <= revision);
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let gone = if self.versions[last].kv.is_none() {
            after
        } else {
            last
        };
        self.versions
            .drain(..gone)
            .map(|version| version.weight())
            .sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}

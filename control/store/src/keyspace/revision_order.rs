//! The keys at a revision in the order of their mod revisions, as a snapshot of etcd has them.

use std::collections::BTreeSet;

use bytes::Bytes;
use dormouse_snapshot::Version;

use super::{KeyRange, Keyspace, Revision, slab::Handle};
use crate::lease::LeaseId;

/// Keys that one slice reads at most, and bytes after which it ends; both bound the time for which
/// the caller holds the lock.
const SLICE_KEYS: usize = 512;
const SLICE_BYTES: usize = 256 << 10;

/// A list of all keys at a revision, which must stay pinned. Holds 16 bytes per key.
#[derive(Debug)]
pub(crate) struct RevisionOrder {
    revision: Revision,
    /// The last key that was listed.
    after: Option<Bytes>,
    /// Mod revisions and cells.
    cells: Vec<(Revision, Handle)>,
    leases: BTreeSet<LeaseId>,
}

impl RevisionOrder {
    /// An empty list.
    pub(crate) fn new(revision: Revision) -> Self {
        Self {
            revision,
            after: None,
            cells: Vec::new(),
            leases: BTreeSet::new(),
        }
    }

    /// The revision whose keys are listed.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Lists some keys; returns whether the list is complete, and in order.
    pub(crate) fn slice(&mut self, keyspace: &Keyspace) -> bool {
        let view = keyspace.at(self.revision);
        let all = KeyRange::From(Bytes::new());
        let after = self.after.take();
        let mut last = None;
        for (scanned, (key, cell)) in view.cells(&all, after.as_deref()).enumerate() {
            if scanned == SLICE_KEYS {
                self.after = last.map(Bytes::copy_from_slice);
                return false;
            }
            last = Some(key);
            if let Some(found) = view.found(cell) {
                self.cells.push((found.version.revision(), cell));
                self.leases.insert(found.fields().lease);
            }
        }
        // Stable: the keys of one revision stay in their order.
        self.cells.sort_by_key(|(revision, _)| *revision);
        true
    }

    /// The leases of the listed keys; 0 is none.
    pub(crate) fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.iter().copied()
    }

    /// Some versions from a position in the complete list on; none at its end.
    pub(crate) fn versions(&self, keyspace: &Keyspace, from: usize) -> Vec<Version> {
        let view = keyspace.at(self.revision);
        let mut bytes = 0;
        let cells = self.cells[from..].iter().take(SLICE_KEYS);
        let versions = cells.map_while(|(revision, cell)| {
            if bytes >= SLICE_BYTES {
                return None;
            }
            let encoded = view.found(*cell)?.encode().encoded().clone();
            bytes += encoded.len();
            Some(Version {
                revision: *revision,
                encoded,
            })
        });
        versions.collect()
    }
}

//! The journal of the store: the records of its changes, in the mode that the policy asks.

use std::collections::BTreeSet;

use dormouse_wal::{
    CompleteSnapshot, Durability, Failure, FileError, Identity, SnapshotWriter, Ticket,
};
use parking_lot::Mutex;

use super::{
    Policy,
    record::{kind, put_bytes, put_number, put_pair},
};
use crate::{
    keyspace::{KeyRange, Keyspace, Revision},
    lease::LeaseId,
};

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    log: dormouse_wal::Journal,
    policy: Policy,
    /// Revisions that wrote keys in mode `none` together with others: they are recorded, and a
    /// snapshot must have their keys.
    mixed: Mutex<BTreeSet<Revision>>,
}

/// Whether a version is in the files of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The mode of its key asks for it.
    ByMode,
    /// Its mode is `none`, and its transaction wrote keys of other modes.
    WithOthers,
    /// It is in memory only.
    Never,
}

/// A write that is applied, and its place in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// The revision at which it ran.
    pub(crate) revision: Revision,
    /// `None` without a journal.
    pub(crate) ticket: Option<Ticket>,
}

/// The cause of a write, which decides how it is recorded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Any other request.
    #[default]
    Request,
    /// The revocation of a lease.
    Revocation(LeaseId),
    /// A request that deleted keys of a range, and nothing else.
    Deletion(KeyRange),
}

/// A revision as a mark of the journal; revisions are positive.
pub(super) fn mark(revision: Revision) -> u64 {
    revision.cast_unsigned()
}

impl Journal {
    pub(crate) fn new(
        log: dormouse_wal::Journal,
        policy: Policy,
        mixed: BTreeSet<Revision>,
    ) -> Self {
        Self {
            log,
            policy,
            mixed: Mutex::new(mixed),
        }
    }

    /// The identity of the data directory.
    pub(crate) fn identity(&self) -> Identity {
        self.log.identity()
    }

    /// The policy of this run.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The revision up to which every write is as durable as its mode asks.
    pub(crate) fn visible(&self) -> Revision {
        self.log.visible().cast_signed()
    }

    /// The failure that ended acknowledgements.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.log.failure()
    }

    /// Records a write with its events above the revision before. The caller holds the lock of the
    /// state. A write without effect takes its place in the order only.
    pub(crate) fn write(&self, keyspace: &Keyspace, before: Revision, cause: &Cause) -> Ticket {
        let revoked = match cause {
            Cause::Request => 0,
            Cause::Revocation(lease) => *lease,
            Cause::Deletion(range) => return self.deletion(keyspace.current(), range),
        };
        let revision = keyspace.current();
        let durability = self.mode(keyspace, (before, revoked));
        self.log
            .append((kind::WRITE, mark(revision)), durability, |out| {
                put_number(out, revision);
                put_number(out, revoked);
                for event in keyspace.events_above(before) {
                    put_pair(out, event.key(), event.encoded());
                }
            })
    }

    /// Records the deletion of a range. A replay deletes what exists in the range, so that the record
    /// does not have to name the keys: its size does not depend on their number.
    fn deletion(&self, revision: Revision, range: &KeyRange) -> Ticket {
        let durability = self.policy.of_range(range);
        let (key, range_end) = range.fields();
        self.log
            .append((kind::DELETE, mark(revision)), durability, |out| {
                put_number(out, revision);
                put_bytes(out, &key);
                put_bytes(out, &range_end);
            })
    }

    /// The strictest mode of the written keys. A revocation is written in any case: otherwise a lease
    /// whose keys are all in mode `none` would be back after every restart.
    fn mode(&self, keyspace: &Keyspace, (before, revoked): (Revision, LeaseId)) -> Durability {
        let least = if revoked == 0 {
            Durability::None
        } else {
            Durability::Buffered
        };
        let (mut strictest, mut weakest) = (least, Durability::Fsync);
        for event in keyspace.events_above(before) {
            let mode = self.policy.of(event.key());
            (strictest, weakest) = (strictest.max(mode), weakest.min(mode));
        }
        if weakest == Durability::None && strictest > Durability::None {
            self.mixed.lock().insert(keyspace.current());
        }
        strictest
    }

    /// Records a change that has no keys, in the mode of the default.
    pub(crate) fn change(
        &self,
        (kind, revision): (u8, Revision),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Ticket {
        let mode = self.policy.default.max(Durability::Buffered);
        self.log.append((kind, mark(revision)), mode, fill)
    }

    /// Records a change that no client waits for: it is written within 10 ms.
    pub(crate) fn note(&self, (kind, revision): (u8, Revision), fill: impl FnOnce(&mut Vec<u8>)) {
        self.log
            .append((kind, mark(revision)), Durability::Buffered, fill);
    }

    /// Returns when a change is as durable as its mode asks. Cancel safe.
    pub(crate) async fn committed(&self, ticket: Ticket) -> Result<(), Failure> {
        self.log.committed(ticket).await
    }

    /// Whether a snapshot has a version of this key and revision; those in mode `none` are lost at a
    /// restart.
    pub(crate) fn recorded(&self, key: &[u8], revision: Revision) -> Recorded {
        if self.policy.of(key) > Durability::None {
            Recorded::ByMode
        } else if self.mixed.lock().contains(&revision) {
            Recorded::WithOthers
        } else {
            Recorded::Never
        }
    }

    /// Forgets the mixed revisions up to that of a snapshot, except those of which it has keys: no
    /// later snapshot has keys of the others.
    pub(crate) fn forget_mixed(&self, snapshot: Revision, kept: &BTreeSet<Revision>) {
        let mut mixed = self.mixed.lock();
        mixed.retain(|revision| *revision > snapshot || kept.contains(revision));
    }

    /// The revisions that wrote keys in mode `none` together with others.
    #[cfg(test)]
    pub(crate) fn mixed(&self) -> Vec<Revision> {
        self.mixed.lock().iter().copied().collect()
    }

    /// Blocks until all records are written and synced.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.log.flush()
    }

    /// Bytes of the segments that a snapshot at a revision makes superfluous.
    pub(crate) fn removable_bytes(&self, revision: Revision) -> u64 {
        self.log.removable_bytes(mark(revision))
    }

    /// Starts a snapshot; see [`dormouse_wal::Journal::snapshot`].
    pub(crate) fn snapshot(&self, revision: Revision) -> Result<SnapshotWriter, FileError> {
        self.log.snapshot(mark(revision))
    }

    /// Removes what a complete snapshot makes superfluous.
    pub(crate) fn remove_before(&self, snapshot: &CompleteSnapshot) -> Result<(), FileError> {
        self.log.remove_before(snapshot)
    }

    /// Ends the run: the next one knows that nothing was lost. Blocks for a sync.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.log.close()
    }
}

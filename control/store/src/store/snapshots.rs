//! Snapshots of a store on a data directory: the state at the compacted revision, read in slices
//! beside the writers, which makes the journal before it superfluous.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use bytes::Bytes;
use dormouse_wal::{FileError, SnapshotWriter};

use super::{Store, pins::Pin};
use crate::{
    durable::{
        Journal, Recorded, kind, policy_text, put_alarms, put_auth, put_hashes, put_lost,
        put_members, put_number, put_pair, put_run,
    },
    keyspace::{KeyRange, Revision},
};

/// Keys that one slice reads at most, and bytes after which it ends; both bound the time for which it
/// holds the lock.
const SLICE_KEYS: usize = 512;
const SLICE_BYTES: usize = 256 << 10;

/// A slice of the keys in order.
struct Slice {
    pairs: Vec<u8>,
    /// The mixed revisions of the pairs.
    mixed: Vec<Revision>,
    /// The first key that may be in the next slice; `None` after the last slice.
    next: Option<Bytes>,
}

impl Store {
    /// Takes snapshots when compactions make them due; never returns. Cancel safe: a snapshot in
    /// progress is completed by its thread.
    pub(crate) async fn take_snapshots(&self) {
        loop {
            self.shared.snapshot_due.notified().await;
            let store = self.clone();
            let taken = tokio::task::spawn_blocking(move || store.snapshot_if_due()).await;
            if let Ok(Err(error)) = taken {
                // The journal is whole without the snapshot; the next compaction tries again.
                tracing::warn!(error = %error, cause = %error.source, "no snapshot was taken");
            }
        }
    }

    /// Takes a snapshot if it makes a segment's bytes of the journal superfluous, and at least those of
    /// the last snapshot: so the files stay within a constant factor of the state. Blocks.
    pub(crate) fn snapshot_if_due(&self) -> Result<(), FileError> {
        let Some(journal) = &self.shared.journal else {
            return Ok(());
        };
        let revision = self.shared.state.read().keyspace.compacted();
        let last = self.shared.snapshot_bytes.load(Ordering::Relaxed);
        let enough = self.shared.limits.journal_segment_bytes.max(last);
        let due = journal.removable_bytes(revision) >= enough;
        if revision > 0 && due {
            self.snapshot(journal)?;
        }
        Ok(())
    }

    /// Takes a snapshot at the compacted revision and removes what it makes superfluous.
    pub(crate) fn snapshot(&self, journal: &Journal) -> Result<(), FileError> {
        let (revision, _pin) = self.pin_compacted();
        let mut writer = journal.snapshot(revision)?;
        self.write_settings(journal, &mut writer)?;
        let mut mixed = BTreeSet::new();
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            let slice = self.slice(journal, (revision, from));
            mixed.extend(slice.mixed);
            writer.append(kind::PAIRS, |out| out.extend_from_slice(&slice.pairs))?;
            next = slice.next;
        }
        let complete = writer.finish()?;
        journal.forget_mixed(revision, &mixed);
        self.shared
            .snapshot_bytes
            .store(complete.bytes, Ordering::Relaxed);
        journal.remove_before(&complete)
    }

    fn pin_compacted(&self) -> (Revision, Pin<'_>) {
        let state = self.shared.state.read();
        let revision = state.keyspace.compacted();
        (revision, self.shared.pins.pin(revision))
    }

    /// Writes what has no revisions as of now: the policy, the losses, alarms, members, users and
    /// leases; and the hashes of the compactions up to the snapshot's.
    fn write_settings(
        &self,
        journal: &Journal,
        writer: &mut SnapshotWriter,
    ) -> Result<(), FileError> {
        let revision = writer.mark().cast_signed();
        writer.append(kind::RUN, |out| {
            put_run(out, revision, &policy_text(journal.policy()));
        })?;
        for (prefix, floor) in self.shared.lost.floors() {
            writer.append(kind::LOST, |out| put_lost(out, floor, [prefix]))?;
        }
        let alarms: Vec<_> = self.shared.state.read().alarms.of_kind(0).collect();
        writer.append(kind::ALARMS, |out| put_alarms(out, alarms))?;
        writer.append(kind::MEMBERS, |out| put_members(out, &self.members()))?;
        let hashes = self.compaction_hashes(revision);
        writer.append(kind::HASHES, |out| put_hashes(out, &hashes))?;
        // The file is written after the lock of the users is released: writes of clients take that.
        let mut auth = Vec::new();
        self.shared.auth.read(|state| put_auth(&mut auth, state));
        writer.append(kind::AUTH, |out| out.extend_from_slice(&auth))?;
        self.list_leases().granted().try_for_each(|(id, ttl_s)| {
            writer.append(kind::GRANT, |out| {
                put_number(out, id);
                put_number(out, ttl_s);
            })
        })
    }

    fn slice(&self, journal: &Journal, (revision, from): (Revision, Bytes)) -> Slice {
        let state = self.shared.state.read();
        let view = state.keyspace.at(revision);
        let mut slice = Slice {
            pairs: Vec::new(),
            mixed: Vec::new(),
            next: None,
        };
        for (scanned, found) in view.scan(&KeyRange::From(from)).enumerate() {
            if scanned == SLICE_KEYS || slice.pairs.len() >= SLICE_BYTES {
                slice.next = Some(Bytes::copy_from_slice(found.key));
                break;
            }
            let written = found.version.revision();
            match journal.recorded(found.key, written) {
                Recorded::Never => continue,
                Recorded::ByMode => {}
                Recorded::WithOthers => slice.mixed.push(written),
            }
            put_pair(&mut slice.pairs, found.key, found.version.encoded());
        }
        slice
    }
}

//! Compaction of the journal while other threads write it: a snapshot is written to a new file, then the records since
//! the snapshot are appended and the file is replaced. Writers wait only during that last step.

use std::io;
use std::mem;
use std::path::Path;
use std::sync::MutexGuard;

use super::{Leases, Shared};
use crate::allocator::Allocator;
use crate::journal::Journal;
use crate::lease::BootId;
use crate::record::Record;

/// Length below which a journal is not compacted, in bytes.
pub(super) const LENGTH_MIN: u64 = 256 * 1024;
/// A journal is compacted when it has grown to this multiple of its last compacted length.
const FACTOR: u64 = 4;

/// Creates a replacement journal with the allocator's present state.
pub(super) fn write(path: &Path, boot: BootId, allocator: &Allocator) -> io::Result<Journal> {
    Journal::create_replacement(path, &records(boot, allocator))
}

fn records(boot: BootId, allocator: &Allocator) -> Vec<Record> {
    let prefix = allocator.prefix();
    let mut records = vec![Record::Header { boot, prefix }];
    records.extend(allocator.snapshot());
    records
}

impl Leases {
    /// Compacts a long journal. After a failure the journal stays in use; the next attempt follows when it has grown by
    /// the same factor again.
    pub(super) fn compact_if_long(&self) {
        let mut shared = self.lock();
        let is_long = shared.length > LENGTH_MIN.max(shared.compacted_length * FACTOR);
        if !is_long || shared.since_snapshot.is_some() {
            return;
        }
        shared.since_snapshot = Some(Vec::new());
        let compacted = self.compact(shared);
        let mut shared = self.lock();
        shared.since_snapshot = None;
        shared.compacted_length = shared.length;
        match compacted {
            Ok(()) => shared.writes.compactions += 1,
            Err(_) => shared.writes.compactions_failed += 1,
        }
    }

    fn compact(&self, shared: MutexGuard<'_, Shared>) -> io::Result<()> {
        let records = records(self.boot, &shared.allocator);
        drop(shared);
        let mut fresh = Journal::create_replacement(&self.path, &records)?;
        let mut shared = self.lock();
        let old = loop {
            match shared.journal.take() {
                Some(journal) => break journal,
                None => shared = self.wait(shared),
            }
        };
        // The list stays, empty: it marks the compaction as running until the file is replaced.
        let since_snapshot = shared
            .since_snapshot
            .as_mut()
            .map(mem::take)
            .unwrap_or_default();
        drop(shared);
        let replaced = fresh.append(&since_snapshot).and_then(|()| fresh.replace());
        let journal = if replaced.is_ok() { fresh } else { old };
        let mut shared = self.lock();
        shared.length = journal.length();
        shared.journal = Some(journal);
        self.written.notify_all();
        drop(shared);
        replaced
    }
}

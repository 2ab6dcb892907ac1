//! Keeps the journal short while others go on writing it: a snapshot is written beside it, then what came later, and
//! only for the last step the journal is taken from the writers.

use std::io;
use std::mem;
use std::path::Path;
use std::sync::MutexGuard;

use super::{Leases, Shared};
use crate::allocator::Allocator;
use crate::journal::Journal;
use crate::lease::BootId;
use crate::record::Record;

/// A journal shorter than this is never compacted, in bytes.
pub(super) const LENGTH_MIN: u64 = 256 * 1024;
/// Compaction when the journal is this many times as long as what it says.
const FACTOR: u64 = 4;

/// Begins a journal that says what the allocator holds.
pub(super) fn write(path: &Path, boot: BootId, allocator: &Allocator) -> io::Result<Journal> {
    Journal::begin(path, &records(boot, allocator))
}

fn records(boot: BootId, allocator: &Allocator) -> Vec<Record> {
    let prefix = allocator.prefix();
    let mut records = vec![Record::Header { boot, prefix }];
    records.extend(allocator.snapshot());
    records
}

impl Leases {
    /// What fails is tried again when the journal has grown once more: it is long, but whole.
    pub(super) fn compact_if_long(&self) {
        let mut shared = self.lock();
        let is_long = shared.length > LENGTH_MIN.max(shared.compacted_length * FACTOR);
        if !is_long || shared.later.is_some() {
            return;
        }
        shared.later = Some(Vec::new());
        let compacted = self.compact(shared);
        let mut shared = self.lock();
        shared.later = None;
        shared.compacted_length = shared.length;
        match compacted {
            Ok(()) => shared.writes.compactions += 1,
            Err(_) => shared.writes.compactions_failed += 1,
        }
    }

    fn compact(&self, shared: MutexGuard<'_, Shared>) -> io::Result<()> {
        let records = records(self.boot, &shared.allocator);
        drop(shared);
        let mut fresh = Journal::begin(&self.path, &records)?;
        let mut shared = self.lock();
        let old = loop {
            match shared.journal.take() {
                Some(journal) => break journal,
                None => shared = self.wait(shared),
            }
        };
        // Still there, though empty: no other compaction may begin before this one has its place.
        let later = shared.later.as_mut().map(mem::take).unwrap_or_default();
        drop(shared);
        let replaced = fresh.append(&later).and_then(|()| fresh.take_place());
        let journal = if replaced.is_ok() { fresh } else { old };
        let mut shared = self.lock();
        shared.length = journal.length();
        shared.journal = Some(journal);
        self.settled.notify_all();
        drop(shared);
        replaced
    }
}

//! Group commit: the first thread that finds the journal available writes the records of all waiting threads; records
//! that arrive during its write form the next batch.

use std::io;
use std::mem;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use super::{Leases, LeasesError, Shared, journal_error};
use crate::journal::Journal;
use crate::lease::State;
use crate::record::Record;

/// Records that are written together, and the outcome once they are.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// Whether one of them ends an operation, so that the write must be synced.
    needs_sync: bool,
    outcome: Arc<OnceLock<Result<(), Arc<io::Error>>>>,
}

impl Batch {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl Leases {
    /// Writes a record, syncs it if it ends an operation, and applies it. On an error it is neither written nor applied,
    /// and its claim is cancelled.
    pub(super) fn commit<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        record: Record,
    ) -> Result<(), LeasesError> {
        shared.batch.needs_sync |= !begins(&record);
        shared.batch.records.push(record);
        let outcome = Arc::clone(&shared.batch.outcome);
        loop {
            if let Some(outcome) = outcome.get() {
                let outcome = outcome.clone();
                return outcome.map_err(|source| journal_error("append to", source));
            }
            shared = match shared.journal.take() {
                Some(journal) => self.write_batch(shared, journal),
                None => self.wait(shared),
            };
        }
    }

    pub(super) fn wait<'a>(&'a self, shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        let shared = self.written.wait(shared);
        shared.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the present batch without holding the lock: other threads may read, claim and queue records meanwhile.
    fn write_batch<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        mut journal: Journal,
    ) -> MutexGuard<'a, Shared> {
        let batch = mem::take(&mut shared.batch);
        drop(shared);
        let written = if batch.needs_sync {
            journal.append(&batch.records)
        } else {
            journal.write(&batch.records)
        };
        let mut shared = self.lock();
        shared.length = journal.length();
        shared.journal = Some(journal);
        shared.finish(batch, written);
        self.written.notify_all();
        shared
    }
}

/// Whether the record only announces an operation: the next process reads it and can undo the operation.
fn begins(record: &Record) -> bool {
    match record {
        Record::Reserve(lease) => lease.state == State::Reserved,
        Record::Release(_) => true,
        _ => false,
    }
}

impl Shared {
    fn finish(&mut self, batch: Batch, written: io::Result<()>) {
        match &written {
            Ok(()) => {
                self.writes.syncs += u64::from(batch.needs_sync);
                self.apply(batch.records);
            }
            Err(_) => {
                for record in &batch.records {
                    if let Record::Reserve(lease) = record {
                        self.allocator.cancel_claim(lease);
                    }
                }
            }
        }
        let outcome = written.map_err(Arc::new);
        // Cannot fail: only the batch's writer sets it.
        let _ = batch.outcome.set(outcome);
    }

    fn apply(&mut self, records: Vec<Record>) {
        for record in &records {
            self.allocator.apply(record);
        }
        self.writes.records += u64::try_from(records.len()).unwrap_or(u64::MAX);
        self.writes.records_at_once_max = self.writes.records_at_once_max.max(records.len());
        if let Some(since_snapshot) = &mut self.since_snapshot {
            since_snapshot.extend(records);
        }
    }
}

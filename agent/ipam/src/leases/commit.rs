//! Group commit: of the threads that have something to write, the first to find the journal free writes for all, and
//! those that come meanwhile gather for the next write.

use std::io;
use std::mem;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use super::{Leases, LeasesError, Shared, journal_error};
use crate::journal::Journal;
use crate::lease::State;
use crate::record::Record;

/// Changes that are written together, and how that ended once it did.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// Whether one of them ends something: the kernel's next boot frees what was only begun.
    ends: bool,
    outcome: Arc<OnceLock<Result<(), Arc<io::Error>>>>,
}

impl Batch {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl Leases {
    /// Returns when the record is written, synced if it ends something, and applied. On an error it is neither, and a
    /// claim is given up.
    pub(super) fn commit<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        record: Record,
    ) -> Result<(), LeasesError> {
        shared.batch.ends |= !begins(&record);
        shared.batch.records.push(record);
        let outcome = Arc::clone(&shared.batch.outcome);
        loop {
            if let Some(outcome) = outcome.get() {
                let outcome = outcome.clone();
                return outcome.map_err(|source| journal_error("append to", source));
            }
            shared = match shared.journal.take() {
                Some(journal) => self.lead(shared, journal),
                None => self.wait(shared),
            };
        }
    }

    pub(super) fn wait<'a>(&'a self, shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        let woken = self.settled.wait(shared);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all that has gathered; others may read, claim and gather meanwhile.
    fn lead<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        mut journal: Journal,
    ) -> MutexGuard<'a, Shared> {
        let batch = mem::take(&mut shared.batch);
        drop(shared);
        let written = if batch.ends {
            journal.append(&batch.records)
        } else {
            journal.write(&batch.records)
        };
        let mut shared = self.lock();
        shared.length = journal.length();
        shared.journal = Some(journal);
        shared.settle(batch, written);
        self.settled.notify_all();
        shared
    }
}

/// Whether the record only says what is about to be done, so that another process can undo it.
fn begins(record: &Record) -> bool {
    match record {
        Record::Reserve(lease) => lease.state == State::Reserved,
        Record::Release(_) => true,
        _ => false,
    }
}

impl Shared {
    fn settle(&mut self, batch: Batch, written: io::Result<()>) {
        match &written {
            Ok(()) => {
                self.writes.syncs += u64::from(batch.ends);
                self.apply(batch.records);
            }
            Err(_) => {
                for record in &batch.records {
                    if let Record::Reserve(lease) = record {
                        self.allocator.give_up(lease);
                    }
                }
            }
        }
        let outcome = written.map_err(Arc::new);
        // Only the batch's one writer sets it.
        let _ = batch.outcome.set(outcome);
    }

    fn apply(&mut self, records: Vec<Record>) {
        for record in &records {
            self.allocator.apply(record);
        }
        self.writes.records += u64::try_from(records.len()).unwrap_or(u64::MAX);
        self.writes.records_at_once_max = self.writes.records_at_once_max.max(records.len());
        if let Some(later) = &mut self.later {
            later.extend(records);
        }
    }
}

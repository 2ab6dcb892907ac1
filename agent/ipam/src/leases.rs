//! The allocator made durable, for many threads at once: every change is in the journal before it is told to anyone.
//!
//! Memory is always what the journal says, plus the claims that are being written. What begins something is written, so
//! that it outlives the process; what ends it is synced, and with it all before: a boot that follows a power cut frees
//! whatever was begun.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::allocator::{AllocateError, Allocator, Request, Usage};
use crate::journal::Journal;
use crate::lease::{BootId, Lease, LeaseKey, State};
use crate::prefix::{NodePrefix, Suffix};
use crate::record::Record;

mod commit;
mod compaction;
mod opening;
#[cfg(test)]
mod tests;

use commit::Batch;
pub use opening::Opening;

/// What can fail.
#[derive(Debug, thiserror::Error)]
pub enum LeasesError {
    /// No address can be given.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The journal cannot be read or written.
    #[error("failed to {operation} the journal of address leases")]
    Journal {
        /// What was being done.
        operation: &'static str,
        /// Why it failed; all who waited for one write are told.
        #[source]
        source: Arc<io::Error>,
    },
    /// The journal tells of pods of another prefix.
    #[error(
        "the journal has {leases} leases of {journal} but the node's prefix is {node}: stop the node's pods and remove the journal, or give the old prefix"
    )]
    OtherPrefix {
        /// Leases in the journal.
        leases: usize,
        /// The journal's prefix.
        journal: NodePrefix,
        /// The node's prefix.
        node: NodePrefix,
    },
}

/// What was written since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Changes.
    pub records: u64,
    /// Syncs that those shared that end something.
    pub syncs: u64,
    /// The most changes that were written at once.
    pub records_at_once_max: usize,
    /// Compactions done.
    pub compactions: u64,
    /// Compactions that failed; the longer journal is still whole, and the next is tried when it has grown again.
    pub compactions_failed: u64,
    /// Bytes cut from the journal's end when it was opened: what a crash left of changes that nobody was told of. More
    /// than a few kilobytes mean a damaged disk.
    pub cut_bytes: u64,
}

/// The node's address leases. Changes may be made by many threads at once and share syncs; those of one attachment must
/// follow one another.
#[derive(Debug)]
pub struct Leases {
    path: PathBuf,
    boot: BootId,
    prefix: NodePrefix,
    shared: Mutex<Shared>,
    /// A batch was written, or the journal is free to write the next.
    settled: Condvar,
}

#[derive(Debug)]
struct Shared {
    allocator: Allocator,
    /// None while a thread writes it.
    journal: Option<Journal>,
    /// What the next writer takes.
    batch: Batch,
    /// What was written since a compaction under way took its snapshot; none while there is none.
    later: Option<Vec<Record>>,
    /// Bytes in the journal.
    length: u64,
    /// Bytes in the journal just after it was last compacted.
    compacted_length: u64,
    writes: Writes,
}

impl Leases {
    /// The node's prefix.
    pub fn prefix(&self) -> NodePrefix {
        self.prefix
    }

    /// The address that a lease holds.
    pub fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.prefix.address(suffix)
    }

    /// All leases, in no order.
    pub fn leases(&self) -> Vec<Arc<Lease>> {
        self.lock().allocator.leases().cloned().collect()
    }

    /// The lease of an attachment.
    pub fn lease(&self, key: &LeaseKey) -> Option<Arc<Lease>> {
        self.lock().allocator.lease(key).cloned()
    }

    /// Why one more pod cannot have an address of each configured family at `now` (since boot), if it cannot.
    pub fn check_room(&self, now: Duration) -> Result<(), AllocateError> {
        self.lock().allocator.check_room(now)
    }

    /// How many addresses are in use, and are left, at `now` (since boot).
    pub fn usage(&self, now: Duration) -> Usage {
        self.lock().allocator.usage(now)
    }

    /// What was written so far.
    pub fn writes(&self) -> Writes {
        self.lock().writes
    }

    /// Reserves addresses: the lease outlives the process, and a power cut when it is confirmed.
    pub fn reserve(&self, request: &Request, now: Duration) -> Result<Arc<Lease>, LeasesError> {
        let mut shared = self.lock();
        let lease = shared.allocator.claim(request, now)?;
        self.commit(shared, Record::Reserve(Arc::clone(&lease)))?;
        Ok(lease)
    }

    /// Takes back a lease that the kernel still shows but the journal has lost; it is live.
    pub fn adopt(&self, lease: &Lease) -> Result<(), LeasesError> {
        let live = Lease {
            state: State::Live,
            ..lease.clone()
        };
        let mut shared = self.lock();
        shared.allocator.claim_used(&live)?;
        self.commit(shared, Record::Reserve(Arc::new(live)))
    }

    /// The pod is wired.
    pub fn confirm(&self, suffix: Suffix) -> Result<(), LeasesError> {
        self.change(suffix, Record::Live(suffix))
    }

    /// Unwiring begins.
    pub fn release(&self, suffix: Suffix) -> Result<(), LeasesError> {
        self.change(suffix, Record::Release(suffix))
    }

    /// Unwiring is done: the addresses rest from `now` (since boot).
    pub fn free(&self, suffix: Suffix, now: Duration) -> Result<(), LeasesError> {
        self.change(suffix, Record::Free(suffix, now))?;
        self.compact_if_long();
        Ok(())
    }

    /// A change of what nobody holds is none.
    fn change(&self, suffix: Suffix, record: Record) -> Result<(), LeasesError> {
        let shared = self.lock();
        if !shared.allocator.holds(suffix) {
            return Ok(());
        }
        self.commit(shared, record)
    }

    /// A thread that panicked left the value whole: it changes only after all that can fail.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn journal_error(operation: &'static str, source: impl Into<Arc<io::Error>>) -> LeasesError {
    LeasesError::Journal {
        operation,
        source: source.into(),
    }
}

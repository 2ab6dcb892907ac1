//! The node's leases: the allocator and its journal, for use by many threads. Every change is in the journal before its
//! method returns.
//!
//! The allocator in memory equals the journal, plus the claims that are being written. A record that begins an operation
//! is written, so it survives a crash of the process. A record that ends one is synced, together with all before it: an
//! operation that a power failure interrupted needs no record, because the next boot voids all leases.

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

/// A failed operation on leases.
#[derive(Debug, thiserror::Error)]
pub enum LeasesError {
    /// No address can be leased.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The journal cannot be read or written.
    #[error("failed to {operation} the journal of address leases")]
    Journal {
        /// The operation, as in `failed to OPERATION the journal`.
        operation: &'static str,
        /// The cause, shared by all changes of one batch.
        #[source]
        source: Arc<io::Error>,
    },
    /// The journal has leases of another prefix.
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

/// Counters of the journal since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Records written.
    pub records: u64,
    /// Syncs; records that end an operation share them.
    pub syncs: u64,
    /// Most records in one write.
    pub records_at_once_max: usize,
    /// Successful compactions.
    pub compactions: u64,
    /// Failed compactions. The longer journal stays in use, and the next attempt follows when it has grown again.
    pub compactions_failed: u64,
    /// Bytes cut from the journal's end at open: changes that a crash interrupted and that were not reported. More than a
    /// few kilobytes mean a damaged disk.
    pub cut_bytes: u64,
}

/// The node's address leases. Concurrent changes share syncs; the caller must serialise the changes of one attachment.
#[derive(Debug)]
pub struct Leases {
    path: PathBuf,
    boot: BootId,
    prefix: NodePrefix,
    shared: Mutex<Shared>,
    /// Signals that a batch was written, or that the journal is available for the next one.
    written: Condvar,
}

#[derive(Debug)]
struct Shared {
    allocator: Allocator,
    /// `None` while a thread writes it.
    journal: Option<Journal>,
    /// The records of the next write.
    batch: Batch,
    /// Records written since the running compaction took its snapshot; `None` while no compaction runs.
    since_snapshot: Option<Vec<Record>>,
    /// Length of the journal, in bytes.
    length: u64,
    /// Length of the journal right after its last compaction, in bytes.
    compacted_length: u64,
    writes: Writes,
}

impl Leases {
    /// The node's prefix.
    pub fn prefix(&self) -> NodePrefix {
        self.prefix
    }

    /// The IPv6 address with this suffix.
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

    /// Fails if no address of a configured family is free for a pod without a cohort at `now` (since boot).
    pub fn check_room(&self, now: Duration) -> Result<(), AllocateError> {
        self.lock().allocator.check_room(now)
    }

    /// Number of addresses by state at `now` (since boot).
    pub fn usage(&self, now: Duration) -> Usage {
        self.lock().allocator.usage(now)
    }

    /// The journal's counters.
    pub fn writes(&self) -> Writes {
        self.lock().writes
    }

    /// Reserves addresses. The lease survives a crash of the process, and a power failure once it is confirmed.
    pub fn reserve(&self, request: &Request, now: Duration) -> Result<Arc<Lease>, LeasesError> {
        let mut shared = self.lock();
        let lease = shared.allocator.claim(request, now)?;
        self.commit(shared, Record::Reserve(Arc::clone(&lease)))?;
        Ok(lease)
    }

    /// Restores, as live, a lease that the journal has lost but whose pod the kernel still shows.
    pub fn adopt(&self, lease: &Lease) -> Result<(), LeasesError> {
        let live = Lease {
            state: State::Live,
            ..lease.clone()
        };
        let mut shared = self.lock();
        shared.allocator.claim_used(&live)?;
        self.commit(shared, Record::Reserve(Arc::new(live)))
    }

    /// Marks a lease as live: the pod is wired.
    pub fn confirm(&self, suffix: Suffix) -> Result<(), LeasesError> {
        self.change(suffix, Record::Live(suffix))
    }

    /// Marks a lease as releasing: the pod's links are about to be removed.
    pub fn release(&self, suffix: Suffix) -> Result<(), LeasesError> {
        self.change(suffix, Record::Release(suffix))
    }

    /// Ends a lease; its addresses are in quarantine from `now` (since boot).
    pub fn free(&self, suffix: Suffix, now: Duration) -> Result<(), LeasesError> {
        self.change(suffix, Record::Free(suffix, now))?;
        self.compact_if_long();
        Ok(())
    }

    /// A change of an address without a lease is ignored.
    fn change(&self, suffix: Suffix, record: Record) -> Result<(), LeasesError> {
        let shared = self.lock();
        if !shared.allocator.holds(suffix) {
            return Ok(());
        }
        self.commit(shared, record)
    }

    /// Ignores poisoning: the value is changed only after everything that can panic.
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

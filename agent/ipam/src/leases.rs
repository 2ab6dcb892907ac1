//! The allocator made durable: every change is in the journal before it is told to anyone.

use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use crate::allocator::{AllocateError, Allocator, Request};
use crate::journal::{Journal, Recovered};
use crate::lease::{BootId, Lease, LeaseKey, State};
use crate::prefix::{NodePrefix, Suffix};
use crate::record::Record;

#[cfg(test)]
mod tests;

/// A journal shorter than this is never compacted, in bytes.
const COMPACT_LEN_MIN: u64 = 256 * 1024;
/// Compaction when the journal is this many times as long as what it says.
const COMPACT_FACTOR: u64 = 4;

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
        /// Why it failed.
        #[source]
        source: io::Error,
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

/// What the node knows when it opens its journal.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// How long a released address rests.
    pub rest: Duration,
    /// This boot: leases of another one are dead, for their namespaces are.
    pub boot: BootId,
}

/// The node's address leases.
#[derive(Debug)]
pub struct Leases {
    allocator: Allocator,
    journal: Journal,
    boot: BootId,
    /// The journal's length just after it was last compacted, in bytes.
    compacted_len: u64,
}

impl Leases {
    /// Opens or creates the journal and replays it.
    pub fn open(path: &Path, opening: Opening) -> Result<Self, LeasesError> {
        let Recovered {
            journal, records, ..
        } = Journal::open(path).map_err(|source| journal_error("open", source))?;
        let allocator = replay(&records, opening)?;
        let mut leases = Self {
            allocator,
            journal,
            boot: opening.boot,
            compacted_len: 0,
        };
        leases.compact()?;
        Ok(leases)
    }

    /// What is held.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// The address that a lease holds.
    pub fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.allocator.prefix().address(suffix)
    }

    /// The lease of an attachment.
    pub fn lease(&self, key: &LeaseKey) -> Option<&Lease> {
        self.allocator.lease(key)
    }

    /// Whether one more pod can have an address at `now` (since boot).
    pub fn has_room(&mut self, now: Duration) -> bool {
        self.allocator.has_room(now)
    }

    /// Reserves an address durably.
    pub fn reserve(&mut self, request: &Request, now: Duration) -> Result<Lease, LeasesError> {
        let lease = self.allocator.plan(request, now)?;
        self.commit(&[Record::Reserve(lease.clone())])?;
        Ok(lease)
    }

    /// Takes back a lease that the kernel still shows but the journal has lost.
    pub fn adopt(&mut self, lease: &Lease) -> Result<(), LeasesError> {
        let reserved = Lease {
            state: State::Reserved,
            ..lease.clone()
        };
        self.commit(&[Record::Reserve(reserved), Record::Live(lease.suffix)])
    }

    /// The pod is wired.
    pub fn confirm(&mut self, suffix: Suffix) -> Result<(), LeasesError> {
        self.commit(&[Record::Live(suffix)])
    }

    /// Unwiring begins.
    pub fn release(&mut self, suffix: Suffix) -> Result<(), LeasesError> {
        self.commit(&[Record::Release(suffix)])
    }

    /// Unwiring is done: the address rests from `now` (since boot).
    pub fn free(&mut self, suffix: Suffix, now: Duration) -> Result<(), LeasesError> {
        self.commit(&[Record::Free(suffix, now)])?;
        if self.journal.length() > COMPACT_LEN_MIN.max(self.compacted_len * COMPACT_FACTOR) {
            self.compact()?;
        }
        Ok(())
    }

    fn commit(&mut self, records: &[Record]) -> Result<(), LeasesError> {
        self.journal
            .append(records)
            .map_err(|source| journal_error("append to", source))?;
        for record in records {
            self.allocator.apply(record);
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LeasesError> {
        let mut records = vec![Record::Header {
            boot: self.boot,
            prefix: self.allocator.prefix(),
        }];
        records.extend(self.allocator.snapshot());
        self.journal
            .replace(&records)
            .map_err(|source| journal_error("compact", source))?;
        self.compacted_len = self.journal.length();
        Ok(())
    }
}

fn journal_error(operation: &'static str, source: io::Error) -> LeasesError {
    LeasesError::Journal { operation, source }
}

/// The allocator that the records lead to. Another boot leaves nothing but the place where drawing goes on.
fn replay(records: &[Record], opening: Opening) -> Result<Allocator, LeasesError> {
    let empty = Allocator::new(opening.prefix, opening.rest);
    let Some(Record::Header { boot, prefix }) = records.first() else {
        return Ok(empty);
    };
    let mut allocator = Allocator::new(*prefix, opening.rest);
    for record in records {
        allocator.apply(record);
    }
    let leases = allocator.leases().count();
    match (*boot == opening.boot, *prefix == opening.prefix) {
        (true, true) => Ok(allocator),
        (true, false) if leases > 0 => Err(LeasesError::OtherPrefix {
            leases,
            journal: *prefix,
            node: opening.prefix,
        }),
        (_, false) => Ok(empty),
        (false, true) => Ok(allocator.forget_all()),
    }
}

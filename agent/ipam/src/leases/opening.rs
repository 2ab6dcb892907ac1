//! Reads the journal back: what this boot's records lead to, or what a reboot leaves.

use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::commit::Batch;
use super::{Leases, LeasesError, Shared, Writes, compaction, journal_error};
use crate::allocator::{Allocator, REST_DEFAULT};
use crate::ipv4::Ipv4Range;
use crate::journal::{Journal, Recovered};
use crate::lease::BootId;
use crate::order::{Order, Secret};
use crate::prefix::NodePrefix;
use crate::record::Record;

/// What the node knows when it opens its journal.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// How long a released address rests.
    pub rest: Duration,
    /// This boot: leases of another one are dead, for their namespaces are.
    pub boot: BootId,
    /// What IPv4 addresses are given from, if any. Those that are held stay when it changes.
    pub range4: Option<Ipv4Range>,
    /// Shuffles the order in which suffixes are drawn, so that one does not tell the next. It may change: what is held or
    /// rests does not.
    pub secret: Option<Secret>,
}

impl Opening {
    /// IPv6 only, drawn by counting, with the usual rest.
    pub fn new(prefix: NodePrefix, boot: BootId) -> Self {
        Self {
            prefix,
            rest: REST_DEFAULT,
            boot,
            range4: None,
            secret: None,
        }
    }

    fn empty(&self, prefix: NodePrefix) -> Allocator {
        let order = self.secret.map_or(Order::Counting, Order::Shuffled);
        Allocator::new(prefix, self.range4, order, self.rest)
    }
}

impl Leases {
    /// Opens or creates the journal and replays it.
    pub fn open(path: &Path, opening: Opening) -> Result<Self, LeasesError> {
        let Recovered {
            journal: old,
            records,
            cut_bytes,
        } = Journal::open(path).map_err(|source| journal_error("open", source))?;
        let allocator = replay(&records, opening)?;
        let compacted = compaction::write(path, opening.boot, &allocator)
            .and_then(|mut journal| journal.take_place().map(|()| journal))
            .map_err(|source| journal_error("compact", source))?;
        drop(old);
        let shared = Shared {
            allocator,
            length: compacted.length(),
            compacted_length: compacted.length(),
            journal: Some(compacted),
            batch: Batch::default(),
            later: None,
            writes: Writes {
                cut_bytes,
                ..Writes::default()
            },
        };
        Ok(Self {
            path: path.to_owned(),
            boot: opening.boot,
            prefix: opening.prefix,
            shared: Mutex::new(shared),
            settled: Condvar::new(),
        })
    }
}

/// The allocator that the records lead to. Another boot leaves nothing but the places where drawing goes on.
fn replay(records: &[Record], opening: Opening) -> Result<Allocator, LeasesError> {
    let empty = opening.empty(opening.prefix);
    let Some(Record::Header { boot, prefix }) = records.first() else {
        return Ok(empty);
    };
    let mut allocator = opening.empty(*prefix);
    for record in records {
        allocator.apply(record);
    }
    let leases = allocator.leases().len();
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

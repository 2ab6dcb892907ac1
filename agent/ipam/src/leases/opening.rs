//! Opening the journal: the replay of its records, and the effects of a reboot or of another configuration.

use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::commit::Batch;
use super::{Leases, LeasesError, Shared, Writes, compaction, journal_error};
use crate::allocator::{Allocator, QUARANTINE_DEFAULT};
use crate::ipv4::Ipv4Range;
use crate::journal::{Journal, Recovered};
use crate::lease::BootId;
use crate::order::{Order, Secret};
use crate::prefix::NodePrefix;
use crate::record::Record;

/// The node's parameters for opening its journal.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// Quarantine of a released address.
    pub quarantine: Duration,
    /// The present boot: leases of an earlier one are void, because their namespaces are gone.
    pub boot: BootId,
    /// The range of IPv4 addresses, if any. Existing leases keep their addresses when it changes.
    pub range4: Option<Ipv4Range>,
    /// Shuffles the order in which suffixes are drawn, so that an address does not reveal the next one. A new secret does
    /// not affect leased and quarantined addresses.
    pub secret: Option<Secret>,
}

impl Opening {
    /// IPv6 only, in ascending order, with the default quarantine.
    pub fn new(prefix: NodePrefix, boot: BootId) -> Self {
        Self {
            prefix,
            quarantine: QUARANTINE_DEFAULT,
            boot,
            range4: None,
            secret: None,
        }
    }

    fn empty(&self, prefix: NodePrefix) -> Allocator {
        let order = self.secret.map_or(Order::Counting, Order::Shuffled);
        Allocator::new(prefix, self.range4, order, self.quarantine)
    }
}

impl Leases {
    /// Opens or creates the journal, replays it, and compacts it. If that fails, as on a full disk, a journal of this boot and prefix
    /// stays in use.
    pub fn open(path: &Path, opening: Opening) -> Result<Self, LeasesError> {
        let Recovered {
            journal: old,
            records,
            cut_bytes,
        } = Journal::open(path).map_err(|source| journal_error("open", source))?;
        let allocator = replay(&records, opening)?;
        let mut writes = Writes {
            cut_bytes,
            ..Writes::default()
        };
        let compacted = compaction::write(path, opening.boot, &allocator)
            .and_then(|mut journal| journal.replace().map(|()| journal));
        let journal = match compacted {
            Ok(compacted) => compacted,
            Err(_) if is_current(&records, &opening) => {
                writes.compactions_failed += 1;
                old
            }
            Err(source) => return Err(journal_error("compact", source)),
        };
        let shared = Shared {
            allocator,
            length: journal.length(),
            compacted_length: journal.length(),
            journal: Some(journal),
            batch: Batch::default(),
            since_snapshot: None,
            writes,
        };
        Ok(Self {
            path: path.to_owned(),
            boot: opening.boot,
            prefix: opening.prefix,
            shared: Mutex::new(shared),
            written: Condvar::new(),
        })
    }
}

/// Whether the records are of this boot and prefix, so that others can follow them.
fn is_current(records: &[Record], opening: &Opening) -> bool {
    let Some(Record::Header { boot, prefix }) = records.first() else {
        return false;
    };
    (*boot, *prefix) == (opening.boot, opening.prefix)
}

/// The allocator after all records. Records of an earlier boot contribute only their cursors.
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
        (false, true) => Ok(allocator.after_reboot()),
    }
}

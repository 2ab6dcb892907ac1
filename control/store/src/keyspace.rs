//! Every key at every revision since the last compaction: pure, no clock, no lock.

mod history;
mod log;
mod range;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::{Error, proto::mvccpb::KeyValue};
use history::History;
use log::Log;
pub use log::{Event, Page, PageLimits};
pub use range::KeyRange;
pub use read::{Selection, check_sort};
pub use write::Write;

/// The store's logical clock, signed as it is on the wire. The empty store is at 1.
pub type Revision = i64;

/// What one version costs beside key and value, for the sum of [`Keyspace::bytes`].
const VERSION_OVERHEAD_BYTES: u64 = 128;

/// All keys, their versions and the ordered log of changes.
#[derive(Debug)]
pub struct Keyspace {
    keys: BTreeMap<Bytes, History>,
    log: Log,
    current: Revision,
    compacted: Revision,
    keys_live: u64,
    bytes: u64,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            log: Log::default(),
            current: 1,
            compacted: -1,
            keys_live: 0,
            bytes: 0,
        }
    }
}

impl Keyspace {
    /// Revision of the last change.
    pub fn current(&self) -> Revision {
        self.current
    }

    /// Oldest revision that can be read; -1 before the first compaction.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Number of keys that exist now.
    pub fn keys_live(&self) -> u64 {
        self.keys_live
    }

    /// Bytes held by all versions, estimated.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The key as it is now, writes of an open [`Write`] included.
    pub fn latest(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.keys.get(key).and_then(History::latest)
    }

    /// Opens a revision. Nothing else may use the keyspace until it is finished.
    pub fn write(&mut self) -> Write<'_> {
        Write::new(self)
    }

    /// The revision to read for a request that asks for `wanted` (0 and below: now, `None`).
    pub fn readable(&self, wanted: Revision) -> Result<Option<Revision>, Error> {
        match wanted {
            _ if wanted <= 0 => Ok(None),
            _ if wanted > self.current => Err(Error::FutureRevision),
            _ if wanted < self.compacted => Err(Error::Compacted),
            _ => Ok(Some(wanted)),
        }
    }

    /// Changes in a range from a revision on, oldest first, whole revisions only. `live` readers
    /// kept up when the changes were made and may still read a little of what is compacted.
    pub fn changes(
        &self,
        range: &KeyRange,
        from: Revision,
        live: bool,
        limits: PageLimits,
    ) -> Result<Page, Error> {
        let readable = from >= self.compacted || (live && from > self.log.forgotten());
        if !readable {
            return Err(Error::Compacted);
        }
        Ok(self.log.page(range, from, self.current, limits))
    }

    /// Forgets what only readers below `revision` could see. Cost follows the changes since the
    /// last compaction, not the number of keys.
    pub fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.current {
            return Err(Error::FutureRevision);
        }
        for event in self.log.between(self.compacted, revision) {
            let Some(history) = self.keys.get_mut(&event.kv.key) else {
                continue;
            };
            self.bytes -= history.compact(revision);
            if history.is_empty() {
                self.keys.remove(&event.kv.key);
            }
        }
        self.log.compact(revision);
        self.compacted = revision;
        Ok(())
    }
}

/// Bytes that one version of a key is counted with.
fn weight(kv: &KeyValue) -> u64 {
    VERSION_OVERHEAD_BYTES + kv.key.len() as u64 + kv.value.len() as u64
}

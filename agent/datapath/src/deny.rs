//! The deny list in the kernel: two tries, one of which is in force.
//!
//! A few changes are made in the trie in force, insertions first, so that no denied packet passes in between. For more of them the other
//! trie is filled, then one store of the configuration puts it in force.

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{MapData, MapError};
use dormouse_agent_sys::readers;
use dormouse_ebpf::config;
use dormouse_ebpf::deny::{DENIED_MAX, LIST_A, LIST_B, NO_LIST};
use parking_lot::Mutex;

use super::clock;
use super::error::DatapathError;
use super::facts::NodeFacts;
use super::load::Loaded;
pub use rows::Denied;
use rows::{Changes, Row, rows};

/// A trie of denied prefixes, with the ends of their entries.
pub(super) type Trie = LpmTrie<MapData, [u8; 16], u64>;

/// The tries' names in the kernel.
pub(super) const NAMES: [&str; 2] = ["deny_a", "deny_b"];
/// Changes that are made in the trie in force: they take some milliseconds.
const CHANGES_MAX: usize = 1_024;
/// Entries that are read at once when a trie is cleared.
const CLEARED: usize = 4_096;

/// The deny list of the node.
pub struct DenyList {
    facts: Arc<NodeFacts>,
    tries: Mutex<Tries>,
    /// Entries in force, for a scrape that must not wait for a long list.
    len: AtomicUsize,
}

impl std::fmt::Debug for DenyList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DenyList").finish_non_exhaustive()
    }
}

struct Tries {
    tries: [Trie; 2],
    /// The entries in force; none: those of the previous agent.
    rows: Option<Vec<Row>>,
}

impl DenyList {
    /// The list of the previous agent stays in force until [`replace`](Self::replace).
    pub(super) fn open(loaded: &mut Loaded, facts: &Arc<NodeFacts>) -> Result<Self, DatapathError> {
        let mut open = |name| -> Result<Trie, DatapathError> {
            Trie::try_from(loaded.take(name)?).map_err(DatapathError::map("open", name))
        };
        let tries = Tries {
            tries: [open(NAMES[0])?, open(NAMES[1])?],
            rows: None,
        };
        Ok(Self {
            facts: Arc::clone(facts),
            tries: Mutex::new(tries),
            len: AtomicUsize::new(0),
        })
    }

    /// Denies these prefixes and no others. On an error the list before stays in force, or that with a part of a few changes.
    pub fn replace(&self, denied: impl IntoIterator<Item = Denied>) -> Result<(), DatapathError> {
        let rows = rows(denied);
        if rows.len() > DENIED_MAX as usize {
            return Err(DatapathError::full("denied prefixes", DENIED_MAX));
        }
        let mut tries = self.tries.lock();
        let in_force = self.facts.current()?.deny;
        let before = tries.rows.take();
        let fits = before
            .as_ref()
            .is_some_and(|before| before.len() + CHANGES_MAX <= DENIED_MAX as usize);
        let changes = before
            .filter(|_| fits && in_force != NO_LIST && !rows.is_empty())
            .and_then(|before| Changes::between(&before, &rows, CHANGES_MAX));
        match changes {
            Some(changes) => tries.change(in_force, &changes)?,
            None => self.put_in_force(&mut tries, in_force, &rows)?,
        }
        self.len.store(rows.len(), Ordering::Relaxed);
        tries.rows = Some(rows);
        Ok(())
    }

    /// The entries in force that have not ended, in no particular order.
    pub fn entries(&self) -> Result<Vec<Denied>, DatapathError> {
        let mut tries = self.tries.lock();
        let list = self.facts.current()?.deny;
        if list == NO_LIST {
            return Ok(Vec::new());
        }
        let (trie, name) = tries.trie(list);
        entries(trie, clock::boottime_ns()).map_err(DatapathError::map("read", name))
    }

    /// Entries in force; 0 before the first [`replace`](Self::replace).
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn put_in_force(
        &self,
        tries: &mut Tries,
        in_force: u8,
        rows: &[Row],
    ) -> Result<(), DatapathError> {
        let next = match in_force {
            _ if rows.is_empty() => NO_LIST,
            LIST_A => LIST_B,
            _ => LIST_A,
        };
        if next != NO_LIST {
            // What an agent left that was killed while it filled the trie.
            tries.clear(next)?;
            tries.fill(next, rows)?;
        }
        self.facts.change(|facts| {
            Ok(config::Config {
                deny: next,
                ..facts
            })
        })?;
        if next != in_force {
            readers::wait_for_readers();
        }
        for list in [LIST_A, LIST_B] {
            if list != next {
                tries.clear(list)?;
            }
        }
        Ok(())
    }
}

impl Tries {
    fn trie(&mut self, list: u8) -> (&mut Trie, &'static str) {
        let place = usize::from(list == LIST_B);
        (&mut self.tries[place], NAMES[place])
    }

    fn change(&mut self, list: u8, changes: &Changes) -> Result<(), DatapathError> {
        self.fill(list, &changes.put)?;
        let (trie, name) = self.trie(list);
        for row in &changes.removed {
            trie.remove(&key(row))
                .map_err(DatapathError::map("remove from", name))?;
        }
        Ok(())
    }

    fn fill(&mut self, list: u8, rows: &[Row]) -> Result<(), DatapathError> {
        let (trie, name) = self.trie(list);
        for row in rows {
            trie.insert(&key(row), row.until_ns, 0)
                .map_err(DatapathError::map("insert into", name))?;
        }
        Ok(())
    }

    fn clear(&mut self, list: u8) -> Result<(), DatapathError> {
        let (trie, name) = self.trie(list);
        loop {
            let some: Result<Vec<_>, MapError> = trie.keys().take(CLEARED).collect();
            let some = some.map_err(DatapathError::map("read", name))?;
            if some.is_empty() {
                return Ok(());
            }
            for key in &some {
                trie.remove(key)
                    .map_err(DatapathError::map("remove from", name))?;
            }
        }
    }
}

fn key(row: &Row) -> Key<[u8; 16]> {
    Key::new(row.length.into(), row.bits.to_be_bytes())
}

/// The entries of a trie that have not ended.
pub(super) fn entries(trie: &Trie, now_ns: u64) -> Result<Vec<Denied>, MapError> {
    let mut denied = Vec::new();
    for entry in trie.iter().take(2 * DENIED_MAX as usize) {
        let (key, until_ns) = entry?;
        let row = Row {
            bits: u128::from_be_bytes(key.data()),
            length: u8::try_from(key.prefix_len()).unwrap_or(u8::MAX),
            until_ns,
        };
        let prefix = row.prefix().filter(|_| now_ns < until_ns);
        denied.extend(prefix.map(|prefix| Denied { prefix, until_ns }));
    }
    Ok(denied)
}

//! Allocation of backends: rows, prefixes, and extents of sets, each with one owner.
//!
//! A row belongs to one set's owner, so id and generation show whether that owner still has the backend. Rows are read back
//! from the arrays: the agent stores no second copy of a million backends.

mod prefixes;

use dormouse_ebpf::maps::{BACKENDS_MAX, Backend, PREFIXES_MAX};
use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, SLOTS_MAX, Set};

use super::arrays::Arrays;
use super::error::DatapathError;
use super::extents::{self, Extents};
use super::grace::Moment;
use super::ids::Ids;
use prefixes::Prefixes;

/// The identity of a backend: address and port.
pub(super) type Key = ([u8; 16], u16);

/// The content of a backend's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) flags: u16,
    pub(super) weight: u16,
}

/// A backend with its id, if it has one already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) row: Row,
    pub(super) id: Option<u32>,
}

impl Member {
    /// Its id as stored in sets.
    pub(super) fn clean_id(&self) -> Option<u32> {
        self.id.map(|id| id & !NEW)
    }
}

/// The allocators of backend rows, prefixes and extents.
#[derive(Debug)]
pub(super) struct Pool {
    rows: Ids,
    prefixes: Prefixes,
    extents: Extents,
}

impl Pool {
    /// Finds the rows that the slots in the arrays use.
    pub(super) fn read(arrays: &Arrays) -> Self {
        let mut pool = Self {
            rows: Ids::new(BACKENDS_MAX),
            prefixes: Prefixes::new(),
            extents: Extents::new(),
        };
        for slot in 0..SLOTS_MAX {
            let (route, set) = arrays.slot(slot);
            if route.present {
                pool.mark(arrays, set);
            }
        }
        pool
    }

    fn mark(&mut self, arrays: &Arrays, set: Set) {
        self.extents.mark(set);
        for id in arrays.ids(set) {
            if self.rows.mark(id)
                && let Some(backend) = arrays.backend(id)
            {
                self.prefixes.mark(arrays, backend.prefix);
            }
        }
    }

    /// Allocates an id for each member without one. If there are too few, no member gets one.
    pub(super) fn admit(
        &mut self,
        arrays: &Arrays,
        members: &mut [Member],
        now: Moment,
    ) -> Result<(), DatapathError> {
        for place in 0..members.len() {
            if members[place].id.is_some() {
                continue;
            }
            match self.make(arrays, &members[place].row, now) {
                Ok(id) => members[place].id = Some(id | NEW),
                Err(full) => {
                    self.undo(arrays, members);
                    return Err(full);
                }
            }
        }
        Ok(())
    }

    /// Releases the ids from [`Pool::admit`], which no program has seen.
    pub(super) fn undo(&mut self, arrays: &Arrays, members: &mut [Member]) {
        for member in members {
            if let Some(id) = member.id.filter(|id| id & NEW != 0) {
                let id = id & !NEW;
                if let Some(backend) = arrays.backend(id) {
                    self.prefixes.undo(arrays, backend.prefix);
                }
                self.rows.undo(id);
                member.id = None;
            }
        }
    }

    /// Writes the rows of members, also the unchanged identities; no generation changes.
    pub(super) fn confirm(arrays: &Arrays, members: &mut [Member]) {
        for member in members {
            let Some(id) = &mut member.id else { continue };
            if *id & NEW != 0 {
                *id &= !NEW;
                continue;
            }
            let row = &member.row;
            if let Some(backend) = arrays.backend(*id)
                && (backend.flags, backend.weight) != (row.flags, row.weight)
            {
                arrays.write_state(
                    *id,
                    &Backend {
                        flags: row.flags,
                        weight: row.weight,
                        ..backend
                    },
                );
            }
        }
    }

    fn make(&mut self, arrays: &Arrays, row: &Row, now: Moment) -> Result<u32, DatapathError> {
        let (address, port) = row.key;
        let id = self
            .rows
            .take(now)
            .ok_or_else(|| full("backends", BACKENDS_MAX))?;
        let Some(prefix) = self.prefixes.uses(arrays, upper(&address), now) else {
            self.rows.undo(id);
            return Err(full("node prefixes", PREFIXES_MAX));
        };
        // A previous agent may have been killed before it changed the generation of the row's last owner.
        let before = arrays.backend(id).unwrap_or_default();
        arrays.clear_load(id);
        arrays.write_backend(
            id,
            &Backend {
                prefix,
                host: [address[12], address[13], address[14], address[15]],
                port,
                generation: before.generation.wrapping_add(1),
                flags: row.flags,
                weight: row.weight,
            },
        );
        Ok(id)
    }

    /// Releases a backend: its generation changes at once.
    pub(super) fn release(&mut self, arrays: &Arrays, id: u32, now: Moment) {
        if let Some(backend) = arrays.backend(id) {
            retire(arrays, id, backend);
            self.prefixes.leaves(arrays, backend.prefix, now);
        }
        self.rows.rest(id, now);
    }

    /// Writes a set into a new extent.
    pub(super) fn write(
        &mut self,
        arrays: &Arrays,
        ids: &[u32],
        now: Moment,
    ) -> Result<u32, DatapathError> {
        let len = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let offset = self
            .extents
            .take(len, now)
            .ok_or_else(|| full("sets of backends", SETS_MAX))?;
        arrays.write_ids(offset, ids);
        Ok(offset)
    }

    /// Releases the extent of a set.
    pub(super) fn rest(&mut self, set: Set, now: Moment) {
        self.extents.rest(set, now);
    }

    /// Releases an extent of `len` ids.
    pub(super) fn rest_ids(&mut self, offset: u32, len: usize, now: Moment) {
        self.extents
            .rest_len(offset, u32::try_from(len).unwrap_or(0), now);
    }

    /// Releases all backends of a set, and its extent.
    pub(super) fn release_all(&mut self, arrays: &Arrays, set: Set, now: Moment) {
        for id in arrays.ids(set) {
            self.release(arrays, id, now);
        }
        self.rest(set, now);
    }

    /// Changes the generation of unused rows that were not released, because a previous agent was killed.
    pub(super) fn retire_forgotten(&self, arrays: &Arrays) {
        for id in (0..BACKENDS_MAX).filter(|id| !self.rows.has(*id)) {
            if let Some(backend) = arrays.backend(id).filter(|backend| backend.weight != 0) {
                retire(arrays, id, backend);
            }
        }
    }

    /// Whether a grace period would free anything.
    pub(super) fn has_resting(&self) -> bool {
        self.rows.has_resting() || self.extents.has_resting() || self.prefixes.has_resting()
    }

    /// Used backends, prefixes, and rows of the arena.
    #[cfg(test)]
    pub(super) fn used(&self) -> [u32; 3] {
        self.fill().map(|(_, used, _)| u32::try_from(used).unwrap())
    }

    /// Used entries and capacity of each map.
    pub(super) fn fill(&self) -> [(&'static str, usize, usize); 3] {
        let row = |name, used: u32, max: u32| (name, used as usize, max as usize);
        [
            row("backend", self.rows.used(), BACKENDS_MAX),
            row("prefix", self.prefixes.used(), PREFIXES_MAX),
            row("backend_set", self.extents.used(), SETS_MAX / ROW_LEN - 1),
        ]
    }
}

/// The backends of a set, sorted by address and port.
pub(super) fn members(arrays: &Arrays, set: Set, members: &mut Vec<Member>) {
    members.clear();
    members.extend(arrays.ids(set).filter_map(|id| {
        let backend = arrays.backend(id)?;
        let upper = arrays.prefix(backend.prefix)?;
        let row = Row {
            key: (address(upper, backend.host), backend.port),
            flags: backend.flags,
            weight: backend.weight,
        };
        Some(Member { row, id: Some(id) })
    }));
    members.sort_unstable_by_key(|member| (member.row.key, member.id));
}

/// Marks the id of a member that is not in a set yet.
const NEW: u32 = 1 << 31;
const _: () = assert!(BACKENDS_MAX < NEW);

/// Makes a row unused: no flow has its generation, and the rendezvous choice skips it.
fn retire(arrays: &Arrays, id: u32, backend: Backend) {
    arrays.write_state(
        id,
        &Backend {
            generation: backend.generation.wrapping_add(1),
            flags: 0,
            weight: 0,
            ..backend
        },
    );
}

/// The counts of a set: backends for new connections, and terminating ones.
pub(super) fn counts(picked: usize, all: usize) -> Result<(u16, u16), DatapathError> {
    let short = |number: usize| {
        u16::try_from(number).map_err(|_too_many| full("backends of one VIP", u16::MAX.into()))
    };
    Ok((short(picked)?, short(all - picked)?))
}

/// Whether a set consists of exactly these ids.
pub(super) fn holds(arrays: &Arrays, set: Set, ids: &[u32]) -> bool {
    extents::len(set) as usize == ids.len() && arrays.ids(set).eq(ids.iter().copied())
}

/// Whether the weights of backends for new connections differ.
pub(super) fn differ<'a>(rows: impl Iterator<Item = &'a Row>) -> bool {
    let mut weights = rows.filter(|row| row.flags != 0).map(|row| row.weight);
    let first = weights.next();
    weights.any(|weight| Some(weight) != first)
}

/// For `ok_or`: no room is left.
pub(super) fn full(what: &'static str, max: u32) -> DatapathError {
    DatapathError::Full {
        what,
        max: max as usize,
    }
}

fn upper(address: &[u8; 16]) -> [u8; 12] {
    let mut upper = [0; 12];
    upper.copy_from_slice(&address[..12]);
    upper
}

fn address(upper: [u8; 12], host: [u8; 4]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..12].copy_from_slice(&upper);
    address[12..].copy_from_slice(&host);
    address
}

//! Allocation of backends: rows, prefixes, and extents of sets, each with one owner.
//!
//! A row belongs to one set's owner, so id and generation show whether that owner still has the backend. Rows are read back
//! from the arrays: the agent stores no second copy of a million backends.

mod prefixes;

use dormouse_ebpf::maps::{BACKENDS_MAX, Backend, PREFIXES_MAX};
use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, SLOTS_MAX, Set};
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::error::DatapathError;
use super::extents::{self, Extents};
use super::grace::{Graces, Moment};
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

/// The allocators of backend rows, prefixes and extents, shared by apps and Services.
///
/// Its lock is the innermost one of the data path. A turn under it ends after [`ROWS_PER_TURN`] rows, and only allocates or
/// releases: rows and sets belong to their owner from then on, who writes them without the lock.
#[derive(Debug)]
pub(super) struct Pool {
    used: Mutex<Used>,
    graces: Graces,
}

/// Number of rows that are allocated or released per turn, in some microseconds.
const ROWS_PER_TURN: u32 = 64;
/// The same number for slices.
const TURN: usize = ROWS_PER_TURN as usize;

#[derive(Debug)]
struct Used {
    rows: Ids,
    prefixes: Prefixes,
    extents: Extents,
}

impl Pool {
    /// Finds the rows that the slots in the arrays use.
    pub(super) fn read(arrays: &Arrays, graces: Graces) -> Self {
        let mut used = Used {
            rows: Ids::new(BACKENDS_MAX),
            prefixes: Prefixes::new(),
            extents: Extents::new(),
        };
        for slot in 0..SLOTS_MAX {
            let (route, set) = arrays.slot(slot);
            if route.present {
                used.mark(arrays, set);
            }
        }
        Self {
            used: Mutex::new(used),
            graces,
        }
    }

    /// The current point between grace periods, for allocation and release.
    pub(super) fn now(&self) -> Moment {
        self.graces.now()
    }

    /// Allocates an id for each member without one. If there are too few, no member gets one.
    pub(super) fn admit(
        &self,
        arrays: &Arrays,
        members: &mut [Member],
    ) -> Result<(), DatapathError> {
        let mut places = Vec::with_capacity(TURN.min(members.len()));
        for first in (0..members.len()).step_by(TURN) {
            let last = members.len().min(first + TURN);
            let given = self.give(arrays, &mut members[first..last], &mut places);
            for (member, prefix) in places.drain(..) {
                if let Some(id) = members[first + member].clean_id() {
                    write_row(arrays, id, prefix, &members[first + member].row);
                }
            }
            if let Err(full) = given {
                self.undo(arrays, members);
                return Err(full);
            }
        }
        Ok(())
    }

    /// One turn: allocates ids and prefixes for new members, whose rows are then written.
    fn give(
        &self,
        arrays: &Arrays,
        members: &mut [Member],
        places: &mut Vec<(usize, u32)>,
    ) -> Result<(), DatapathError> {
        let now = self.now();
        let mut used = self.used.lock();
        for (place, member) in members.iter_mut().enumerate() {
            if member.id.is_none() {
                let (id, prefix) = used.give(arrays, &member.row, now)?;
                member.id = Some(id | NEW);
                places.push((place, prefix));
            }
        }
        Ok(())
    }

    /// Releases the ids from [`Pool::admit`], which no program has seen.
    pub(super) fn undo(&self, arrays: &Arrays, members: &mut [Member]) {
        for members in members.chunks_mut(TURN) {
            let mut used = self.used.lock();
            for member in members {
                if let Some(id) = member.id.filter(|id| id & NEW != 0) {
                    used.undo(arrays, id & !NEW);
                    member.id = None;
                }
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

    /// Releases a backend: its generation changes at once.
    pub(super) fn release(&self, arrays: &Arrays, id: u32) {
        self.release_some(arrays, &[id]);
    }

    /// Releases all backends of a set, and its extent.
    pub(super) fn release_all(&self, arrays: &Arrays, set: Set) {
        let ids: Vec<u32> = arrays.ids(set).collect();
        for ids in ids.chunks(TURN) {
            self.release_some(arrays, ids);
        }
        self.release_set(set);
    }

    fn release_some(&self, arrays: &Arrays, ids: &[u32]) {
        let rows = ids.iter().map(|id| (*id, arrays.backend(*id)));
        for (id, backend) in rows.clone() {
            if let Some(backend) = backend {
                retire(arrays, id, backend);
            }
        }
        let now = self.now();
        let mut used = self.used.lock();
        for (id, backend) in rows {
            if let Some(backend) = backend {
                used.prefixes.leaves(arrays, backend.prefix, now);
            }
            used.rows.release(id, now);
        }
    }

    /// Writes a set into a new extent.
    pub(super) fn write(&self, arrays: &Arrays, ids: &[u32]) -> Result<u32, DatapathError> {
        let len = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let now = self.now();
        let place = self.used.lock().extents.take(len, now);
        let offset = place.ok_or_else(|| DatapathError::full("sets of backends", SETS_MAX))?;
        arrays.write_ids(offset, ids);
        Ok(offset)
    }

    /// Releases the extent of a set.
    pub(super) fn release_set(&self, set: Set) {
        let now = self.now();
        self.used.lock().extents.release(set, now);
    }

    /// Releases an extent of `len` ids.
    pub(super) fn release_ids(&self, offset: u32, len: usize) {
        let now = self.now();
        let len = u32::try_from(len).unwrap_or(0);
        self.used.lock().extents.release_len(offset, len, now);
    }

    /// Changes the generation of unused rows that were not released, because a previous agent was killed.
    pub(super) fn retire_forgotten(&self, arrays: &Arrays) {
        for first in (0..BACKENDS_MAX).step_by(TURN) {
            // Under the lock, so that no row gets an owner meanwhile.
            let used = self.used.lock();
            let last = BACKENDS_MAX.min(first.saturating_add(ROWS_PER_TURN));
            for id in (first..last).filter(|id| !used.rows.has(*id)) {
                if let Some(backend) = arrays.backend(id).filter(|backend| backend.weight != 0) {
                    retire(arrays, id, backend);
                }
            }
        }
    }

    /// Whether a grace period would free anything.
    pub(super) fn has_quarantined(&self) -> bool {
        let used = self.used.lock();
        used.rows.has_quarantined()
            || used.extents.has_quarantined()
            || used.prefixes.has_quarantined()
    }

    /// Used backends, prefixes, and rows of the arena.
    #[cfg(test)]
    pub(super) fn used(&self) -> [u32; 3] {
        self.fill().map(|(_, used, _)| u32::try_from(used).unwrap())
    }

    /// Used entries and capacity of each map.
    pub(super) fn fill(&self) -> [(&'static str, usize, usize); 3] {
        let used = self.used.lock();
        let row = |name, used: u32, max: u32| (name, used as usize, max as usize);
        [
            row("backend", used.rows.used(), BACKENDS_MAX),
            row("prefix", used.prefixes.used(), PREFIXES_MAX),
            row("backend_set", used.extents.used(), SETS_MAX / ROW_LEN - 1),
        ]
    }
}

impl Used {
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

    /// Allocates an id and a prefix for a new row.
    fn give(
        &mut self,
        arrays: &Arrays,
        row: &Row,
        now: Moment,
    ) -> Result<(u32, u32), DatapathError> {
        let (address, _) = row.key;
        let id = self
            .rows
            .take(now)
            .ok_or_else(|| DatapathError::full("backends", BACKENDS_MAX))?;
        let Some(prefix) = self.prefixes.uses(arrays, upper(&address), now) else {
            self.rows.undo(id);
            return Err(DatapathError::full("node prefixes", PREFIXES_MAX));
        };
        Ok((id, prefix))
    }

    /// Releases a row that no program has seen.
    fn undo(&mut self, arrays: &Arrays, id: u32) {
        if let Some(backend) = arrays.backend(id) {
            self.prefixes.undo(arrays, backend.prefix);
        }
        self.rows.undo(id);
    }
}

/// Writes the row of a new backend.
fn write_row(arrays: &Arrays, id: u32, prefix: u32, row: &Row) {
    let (address, port) = row.key;
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
}

/// The backends of a set, sorted by address and port; rows of one backend in the order of the set.
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
    members.sort_by_key(|member| member.row.key);
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
        u16::try_from(number)
            .map_err(|_too_many| DatapathError::full("backends of one VIP", u16::MAX.into()))
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

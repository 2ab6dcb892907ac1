//! The memory-mapped arrays of the data path, and the layout of rows in 64-bit words.

use std::net::IpAddr;

use dormouse_agent_sys::words::Words;
use dormouse_ebpf::load::{Load, Tally};
use dormouse_ebpf::maps::{BACKENDS_MAX, Backend, FRONTEND_FILTER_WORDS, PREFIXES_MAX};
use dormouse_ebpf::service::{Route, SETS_MAX, SLOTS_MAX, Set, VIPS_MAX};

use super::error::DatapathError;
use super::extents;

/// The arrays. Programs read all of them; `touch` is written by programs only, `loads` by programs and agent.
#[derive(Debug)]
pub(super) struct Arrays {
    /// Two words per slot: route, set.
    pub(super) svc: Words,
    /// One word per app VIP, written by programs.
    pub(super) touch: Words,
    /// The arena of sets: two ids per word.
    pub(super) backend_set: Words,
    /// Two words per backend: address, state.
    pub(super) backend: Words,
    /// Two words per backend: connection counts of flows and of sockets.
    pub(super) loads: Words,
    /// Two words per prefix.
    pub(super) prefix: Words,
    /// The frontend Bloom filter.
    pub(super) frontend_filter: Words,
    /// End of the node lease.
    pub(super) lease: Words,
    /// Index of the active slot of `config`.
    pub(super) current: Words,
}

impl Arrays {
    /// The arrays, each created from its name and number of words.
    pub(super) fn of(
        map: impl Fn(&'static str, usize) -> Result<Words, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let map = |name, words: u32| map(name, words as usize);
        Ok(Self {
            svc: map("svc", SLOTS_MAX * 2)?,
            touch: map("touch", VIPS_MAX)?,
            backend_set: map("backend_set", SETS_MAX / 2)?,
            backend: map("backend", BACKENDS_MAX * 2)?,
            loads: map("load", BACKENDS_MAX * 2)?,
            prefix: map("prefix", PREFIXES_MAX * 2)?,
            frontend_filter: map("frontend_filter", FRONTEND_FILTER_WORDS)?,
            lease: map("lease", 1)?,
            current: map("current", 1)?,
        })
    }

    /// Arrays of the same sizes in user memory, for tests.
    #[cfg(test)]
    pub(super) fn anonymous() -> Result<Self, DatapathError> {
        Self::of(|name, words| {
            anonymous(words).map_err(DatapathError::map("make the memory of", name))
        })
    }

    /// Writes ids into the arena from `offset` on, which is even.
    pub(super) fn write_ids(&self, offset: u32, ids: &[u32]) {
        for (pair, place) in ids.chunks(2).zip(offset as usize / 2..) {
            let second = pair.get(1).copied().unwrap_or(0);
            self.backend_set.store(place, words_of([pair[0], second]));
        }
    }

    /// The id at an index of the arena.
    pub(super) fn id(&self, place: u32) -> Option<u32> {
        let pair = halves(self.backend_set.load(place as usize / 2)?);
        Some(pair[place as usize % 2])
    }

    /// The two words of a slot; an index beyond the end is an empty slot.
    pub(super) fn slot(&self, slot: u32) -> (Route, Set) {
        let word = |half| self.svc.load(slot as usize * 2 + half).unwrap_or(0);
        (Route::unpack(word(0)), Set::unpack(word(1)))
    }

    /// Writes a slot's route word.
    pub(super) fn write_route(&self, slot: u32, route: Route) {
        self.svc.store(slot as usize * 2, route.pack());
    }

    /// Writes a slot's set word.
    pub(super) fn write_set(&self, slot: u32, set: Set) {
        self.svc.store(slot as usize * 2 + 1, set.pack());
    }

    /// The ids of a set, terminating ones last.
    pub(super) fn ids(&self, set: Set) -> impl Iterator<Item = u32> {
        (set.offset..)
            .take(extents::len(set) as usize)
            .map_while(|place| self.id(place))
    }

    /// Writes a backend: the address before the state, so that the row is complete when the new generation is visible.
    pub(super) fn write_backend(&self, id: u32, backend: &Backend) {
        let place = id as usize * 2;
        let host = u32::from_ne_bytes(backend.host);
        self.backend.store(place, words_of([backend.prefix, host]));
        self.write_state(id, backend);
    }

    /// Writes a backend's state word: one store.
    pub(super) fn write_state(&self, id: u32, backend: &Backend) {
        let mut bytes = [0; 8];
        let fields = [
            backend.port,
            backend.generation,
            backend.flags,
            backend.weight,
        ];
        for (place, field) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *place = field.to_ne_bytes();
        }
        let place = id as usize * 2 + 1;
        self.backend.store(place, u64::from_ne_bytes(bytes));
    }

    /// A backend's row.
    pub(super) fn backend(&self, id: u32) -> Option<Backend> {
        let place = id as usize * 2;
        let [prefix, host] = halves(self.backend.load(place)?);
        let state = self.backend.load(place + 1)?.to_ne_bytes();
        let field = |at: usize| u16::from_ne_bytes([state[at], state[at + 1]]);
        Some(Backend {
            prefix,
            host: host.to_ne_bytes(),
            port: field(0),
            generation: field(2),
            flags: field(4),
            weight: field(6),
        })
    }

    /// A backend's connection counts.
    pub(super) fn load(&self, id: u32) -> Load {
        let word = |half| self.loads.load(id as usize * 2 + half).unwrap_or(0);
        Load {
            flows: Tally::unpack(word(0)),
            sockets: Tally::unpack(word(1)),
        }
    }

    /// Counts the end of flows that no program saw.
    pub(super) fn end_flows(&self, id: u32, flows: u32) {
        self.loads
            .add(id as usize * 2, u64::from(flows) * Tally::ENDED);
    }

    /// Clears the counts before an id gets its next generation.
    pub(super) fn clear_load(&self, id: u32) {
        for half in 0..2 {
            self.loads.store(id as usize * 2 + half, 0);
        }
    }

    /// Writes a prefix that no backend refers to.
    pub(super) fn write_prefix(&self, id: u32, prefix: [u8; 12]) {
        let mut row = [0; 16];
        row[..12].copy_from_slice(&prefix);
        let words = row
            .as_chunks::<8>()
            .0
            .iter()
            .copied()
            .map(u64::from_ne_bytes);
        for (word, place) in words.zip(id as usize * 2..) {
            self.prefix.store(place, word);
        }
    }

    /// The prefix with this id: 12 bytes.
    pub(super) fn prefix(&self, id: u32) -> Option<[u8; 12]> {
        let place = id as usize * 2;
        let mut prefix = [0; 12];
        prefix[..8].copy_from_slice(&self.prefix.load(place)?.to_ne_bytes());
        prefix[8..].copy_from_slice(&self.prefix.load(place + 1)?.to_ne_bytes()[..4]);
        Some(prefix)
    }

    /// The prefix as the upper part of an address, the rest zero.
    pub(super) fn upper(&self, id: u32) -> Option<[u8; 16]> {
        let mut address = [0; 16];
        address[..12].copy_from_slice(&self.prefix(id)?);
        Some(address)
    }
}

/// An address as in map keys; IPv4 is mapped.
pub fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Two adjacent 32-bit numbers as one word in memory order.
fn words_of([first, second]: [u32; 2]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let [first, second] = [0, 4].map(|at| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [u32::from_ne_bytes(first), u32::from_ne_bytes(second)]
}

/// Memory for tests, in the form in which the kernel gives an array's.
#[cfg(test)]
pub(crate) fn anonymous(words: usize) -> std::io::Result<Words> {
    use std::os::fd::AsFd as _;

    let file = tempfile::tempfile()?;
    file.set_len((words * size_of::<u64>()) as u64)?;
    Words::map(file.as_fd(), words)
}

//! A write-through cache of a kernel map with one writer: reads need no system call, and only differences are written.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use aya::Pod;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap as BpfHashMap, MapData, MapError};
use dormouse_ebpf::maps::SourceRange;

use super::error::DatapathError;

/// The map in the kernel.
pub(super) trait KernelMap<K, V>: Send {
    fn all(&self) -> Result<Vec<(K, V)>, MapError>;
    fn put(&mut self, key: &K, value: V) -> Result<(), MapError>;
    fn take(&mut self, key: &K) -> Result<(), MapError>;
}

/// A map with its cached content. The agent is its only writer.
pub(super) struct WriteThrough<K, V> {
    name: &'static str,
    map: Box<dyn KernelMap<K, V>>,
    cached: HashMap<K, V>,
    max: u32,
}

impl<K: Debug, V: Debug> Debug for WriteThrough<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteThrough")
            .field("name", &self.name)
            .field("cached", &self.cached)
            .finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Copy, V: PartialEq + Copy> WriteThrough<K, V> {
    /// Reads the content that the previous agent left.
    pub(super) fn open(
        name: &'static str,
        map: Box<dyn KernelMap<K, V>>,
        max: u32,
    ) -> Result<Self, DatapathError> {
        let cached = map.all().map_err(DatapathError::map("read", name))?;
        Ok(Self {
            name,
            map,
            cached: cached.into_iter().collect(),
            max,
        })
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.cached.get(key).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.cached.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    /// Writes a value if it differs. Returns whether it did.
    pub(super) fn put(&mut self, key: K, value: V) -> Result<bool, DatapathError> {
        let cached = self.cached.get(&key);
        if cached == Some(&value) {
            return Ok(false);
        }
        if cached.is_none() && self.cached.len() >= self.max as usize {
            return Err(DatapathError::full(self.name, self.max));
        }
        self.map
            .put(&key, value)
            .map_err(DatapathError::map("insert into", self.name))?;
        self.cached.insert(key, value);
        Ok(true)
    }

    /// Removes a key. Returns whether it was present.
    pub(super) fn take(&mut self, key: &K) -> bool {
        if self.cached.remove(key).is_none() {
            return false;
        }
        if let Err(error) = self.map.take(key) {
            tracing::warn!(map = self.name, %error, "failed to remove an entry");
        }
        true
    }
}

impl<K: Pod + Send, V: Pod + Send> KernelMap<K, V> for BpfHashMap<MapData, K, V> {
    fn all(&self) -> Result<Vec<(K, V)>, MapError> {
        self.iter().collect()
    }

    fn put(&mut self, key: &K, value: V) -> Result<(), MapError> {
        self.insert(key, value, 0)
    }

    fn take(&mut self, key: &K) -> Result<(), MapError> {
        self.remove(key)
    }
}

/// A source range of a slot: prefix length over slot and address, the slot in network order, the address.
pub(super) type Range = (u32, [u8; 4], [u8; 16]);

fn key(&(length, slot, address): &Range) -> Key<SourceRange> {
    Key::new(length, SourceRange { slot, address })
}

impl KernelMap<Range, u32> for LpmTrie<MapData, SourceRange, u32> {
    fn all(&self) -> Result<Vec<(Range, u32)>, MapError> {
        let range = |key: Key<SourceRange>| {
            let SourceRange { slot, address } = key.data();
            (key.prefix_len(), slot, address)
        };
        let pairs = self.iter();
        pairs
            .map(|pair| pair.map(|(key, value)| (range(key), value)))
            .collect()
    }

    fn put(&mut self, range: &Range, value: u32) -> Result<(), MapError> {
        self.insert(&key(range), value, 0)
    }

    fn take(&mut self, range: &Range) -> Result<(), MapError> {
        self.remove(&key(range))
    }
}

#[cfg(test)]
pub(super) mod memory {
    //! Maps in user memory, shared by successive agents of a test.

    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::{Hash, HashMap, KernelMap, MapError, Range};

    /// A hash map.
    #[derive(Clone, Default)]
    pub(crate) struct Memory<K, V>(pub(crate) Arc<Mutex<HashMap<K, V>>>);

    impl<K: Eq + Hash, V: Copy> Memory<K, V> {
        pub(crate) fn get(&self, key: &K) -> Option<V> {
            self.0.lock().get(key).copied()
        }
    }

    impl<K: Eq + Hash + Copy + Send, V: Copy + Send> KernelMap<K, V> for Memory<K, V> {
        fn all(&self) -> Result<Vec<(K, V)>, MapError> {
            Ok(self
                .0
                .lock()
                .iter()
                .map(|(key, value)| (*key, *value))
                .collect())
        }

        fn put(&mut self, key: &K, value: V) -> Result<(), MapError> {
            self.0.lock().insert(*key, value);
            Ok(())
        }

        fn take(&mut self, key: &K) -> Result<(), MapError> {
            let found = self.0.lock().remove(key);
            found.map(drop).ok_or(MapError::KeyNotFound)
        }
    }

    /// A trie.
    #[derive(Clone, Default)]
    pub(crate) struct Trie(pub(crate) Memory<Range, u32>);

    fn bits(slot: [u8; 4], address: [u8; 16], length: u32) -> (u32, u128) {
        let free = 128 - length.saturating_sub(32).min(128);
        let mask = u128::MAX.checked_shl(free).unwrap_or(0);
        (
            u32::from_be_bytes(slot),
            u128::from_be_bytes(address) & mask,
        )
    }

    impl Trie {
        /// Whether a prefix of the slot contains the source.
        pub(crate) fn admits(&self, slot: u32, source: &[u8; 16]) -> bool {
            let map = self.0.0.lock();
            map.keys().any(|(length, of_slot, address)| {
                bits(*of_slot, *address, *length) == bits(slot.to_be_bytes(), *source, *length)
            })
        }
    }

    impl KernelMap<Range, u32> for Trie {
        fn all(&self) -> Result<Vec<(Range, u32)>, MapError> {
            self.0.all()
        }

        fn put(&mut self, range: &Range, value: u32) -> Result<(), MapError> {
            self.0.put(range, value)
        }

        fn take(&mut self, range: &Range) -> Result<(), MapError> {
            self.0.take(range)
        }
    }
}

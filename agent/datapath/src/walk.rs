//! Walks over hash maps while programs change them, by whole buckets (batch lookup): a walk from key to key loses its place when
//! the map reuses a key's element.

use std::os::fd::AsFd as _;

use aya::Pod;
use aya::maps::{HashMap, IterableMap as _, MapData};
use dormouse_agent_sys::bpf;

use super::error::DatapathError;

/// Number of entries per batch, more than a bucket has.
const BATCH: usize = 1 << 12;

/// A walk over a map, and the memory of one batch of copied entries. The map may be changed between two batches.
pub(super) struct Batches<K, V> {
    name: &'static str,
    keys: Vec<K>,
    values: Vec<V>,
    /// The place in the map; none before the walk and after it.
    cursor: Option<u32>,
    ended: bool,
}

impl<K: Pod + Default, V: Pod + Default> Batches<K, V> {
    /// A walk over the map of this name.
    pub(super) fn of(name: &'static str) -> Self {
        Self {
            name,
            keys: vec![K::default(); BATCH],
            values: vec![V::default(); BATCH],
            cursor: None,
            ended: false,
        }
    }

    /// The next entries, which may be none; `None` after the last ones.
    pub(super) fn next<'a>(
        &'a mut self,
        map: &HashMap<MapData, K, V>,
    ) -> Result<Option<impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V>>, DatapathError> {
        if self.ended {
            return Ok(None);
        }
        let into = (&mut self.keys[..], &mut self.values[..]);
        let read = bpf::lookup_batch(map.map().fd().as_fd(), &mut self.cursor, into)
            .map_err(DatapathError::map("walk through", self.name))?;
        self.ended = self.cursor.is_none();
        Ok(Some(self.keys[..read].iter().zip(&self.values)))
    }
}

/// Calls `show` for the entries of a hash map while it returns true.
pub(super) fn walk<K: Pod + Default, V: Pod + Default>(
    map: &HashMap<MapData, K, V>,
    name: &'static str,
    mut show: impl FnMut(&K, &V) -> bool,
) -> Result<(), DatapathError> {
    let mut batches = Batches::of(name);
    while let Some(mut entries) = batches.next(map)? {
        if !entries.all(|(key, value)| show(key, value)) {
            break;
        }
    }
    Ok(())
}

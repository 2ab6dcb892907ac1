//! The hash index compared with a `HashMap`.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::keyspace::cell::CELL_HEADER_BYTES;

/// The index, the cells and the model.
struct Model {
    records: Slab,
    points: Points,
    cells: HashMap<Vec<u8>, Handle>,
}

impl Model {
    fn new() -> Self {
        Self {
            records: Slab::new(),
            points: Points::new(),
            cells: HashMap::new(),
        }
    }

    /// Inserts the key if it is absent, else removes it.
    fn toggle(&mut self, key: &[u8]) {
        if let Some(cell) = self.cells.remove(key) {
            assert!(self.points.remove(&self.records, cell));
            assert!(!self.points.remove(&self.records, cell), "removed twice");
            self.records.remove(cell);
        } else {
            let cell = self.records.insert(&[&[0; CELL_HEADER_BYTES], key]);
            let hash = self.points.hash(key);
            self.points.insert(&self.records, (cell, hash));
            self.cells.insert(key.to_vec(), cell);
        }
    }

    fn check(&self) {
        assert_eq!(self.points.len(), self.cells.len());
        for (key, cell) in &self.cells {
            assert_eq!(self.get(key), Some(*cell));
        }
        let cells: Vec<_> = self.cells.iter().collect();
        for cells in cells.chunks(AT_ONCE) {
            let keys = cells.iter().map(|(key, _)| self.hashed(key));
            let found = self.points.get_all(&self.records, keys);
            let expected = cells.iter().map(|(_, cell)| Some(**cell));
            assert!(found.into_iter().take(cells.len()).eq(expected));
        }
    }

    fn hashed<'k>(&self, key: &'k [u8]) -> (&'k [u8], Hash) {
        (key, self.points.hash(key))
    }

    fn get(&self, key: &[u8]) -> Option<Handle> {
        self.points.get(&self.records, self.hashed(key))
    }
}

proptest! {
    #[test]
    fn it_finds_what_a_hash_map_finds(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3), 1..1500),
        absent in prop::collection::vec(any::<u8>(), 3..5),
    ) {
        let mut model = Model::new();
        for key in &keys {
            model.toggle(key);
        }
        model.check();
        prop_assert_eq!(model.get(&absent), None);
        let keys = [model.hashed(&absent)].into_iter();
        prop_assert_eq!(model.points.get_all(&model.records, keys)[0], None);
    }
}

#[test]
fn it_grows_to_a_hundred_thousand_keys_in_less_than_fourteen_bytes_each_and_shrinks_to_nothing() {
    const KEYS: u64 = 100_000;
    let mut model = Model::new();
    for n in 0..KEYS {
        model.toggle(format!("/registry/pods/{n}").as_bytes());
    }
    model.check();
    let held = model.points.held_bytes();
    assert!(held < 14 * KEYS, "{held} bytes");
    for n in 0..KEYS {
        model.toggle(format!("/registry/pods/{n}").as_bytes());
    }
    model.check();
    assert_eq!(model.points.buckets.len(), 1);
    assert_eq!(model.points.blocks.held_bytes(), 0);
    assert!(
        model.points.held_bytes() < 100,
        "{}",
        model.points.held_bytes()
    );
}

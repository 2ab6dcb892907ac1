//! The slab compared with a map of the records.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

use proptest::prelude::*;

use super::{class::SLOT_BYTES_MAX, region::PAGE_BYTES, *};

#[derive(Clone, Debug)]
enum Step {
    /// Inserts a record of this length.
    Insert(usize),
    /// Removes the record at this share (of 65535) of the live ones.
    Remove(u16),
    /// Overwrites the record at this share.
    Overwrite(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![
        6 => 0..700_usize,
        2 => 700..SLOT_BYTES_MAX,
        1 => SLOT_BYTES_MAX..3 * SLOT_BYTES_MAX,
    ];
    prop_oneof![
        5 => len.prop_map(Step::Insert),
        3 => any::<u16>().prop_map(Step::Remove),
        1 => any::<u16>().prop_map(Step::Overwrite),
    ]
}

/// Contents that differ between records and positions.
fn contents(seed: usize, len: usize) -> Vec<u8> {
    let byte = |n: usize| seed.wrapping_mul(31).wrapping_add(n * 7).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

/// The slab and the records that it must hold.
struct Model {
    slab: Slab,
    records: Vec<(Handle, Vec<u8>)>,
}

impl Model {
    fn new() -> Self {
        Self {
            slab: Slab::new(),
            records: Vec::new(),
        }
    }

    fn at(&self, share: u16) -> Option<usize> {
        let last = self.records.len().checked_sub(1)?;
        Some(usize::from(share) * last / usize::from(u16::MAX))
    }

    fn apply(&mut self, seed: usize, step: &Step) {
        match *step {
            Step::Insert(len) => {
                let record = contents(seed, len);
                let (head, tail) = record.split_at(len / 3);
                self.records.push((self.slab.insert(&[head, tail]), record));
            }
            Step::Remove(share) => {
                let Some(at) = self.at(share) else { return };
                self.slab.remove(self.records.swap_remove(at).0);
            }
            Step::Overwrite(share) => {
                let Some(at) = self.at(share) else { return };
                let (handle, record) = &mut self.records[at];
                *record = contents(seed, record.len());
                self.slab.get_mut(*handle).copy_from_slice(record);
            }
        }
    }

    fn check(&self) {
        for (handle, record) in &self.records {
            assert!(
                self.slab.get(*handle) == record,
                "{handle:?} has other bytes"
            );
        }
        let slots = self.records.iter().map(|(_, record)| {
            Class::of(record.len()).map_or(record.len(), Class::slot_bytes) as u64
        });
        assert_eq!(self.slab.used_bytes(), slots.sum::<u64>());
        assert!(self.slab.held_bytes() >= self.slab.used_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_keep_their_bytes_and_all_memory_is_given_back(
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut model = Model::new();
        for (seed, step) in steps.iter().enumerate() {
            model.apply(seed, step);
        }
        model.check();
        while !model.records.is_empty() {
            model.apply(0, &Step::Remove(40_000));
        }
        prop_assert_eq!((model.slab.held_bytes(), model.slab.used_bytes()), (0, 0));
        prop_assert!(model.slab.regions.iter().all(|region| region.resident_bytes() == 0));
    }

    #[test]
    fn a_handle_is_the_place_that_it_was_made_of(
        region in 0..REGIONS_MAX, slot in 0..REGION_BYTES / 16, slack in 0..4096_usize,
    ) {
        let place = Place { region, slot, slack };
        let handle = Handle::new(place);
        prop_assert_eq!(handle.place(), place);
        prop_assert_eq!(handle.bits() >> Handle::BITS, 0);
        let tagged = handle.bits() | 1 << (usize::BITS - 1);
        prop_assert_eq!(Handle::from_bits(tagged), Some(handle));
        prop_assert_eq!(Handle::from_bytes(Handle::to_bytes(Some(handle))), Some(handle));
    }
}

#[test]
fn an_absent_handle_is_zeros() {
    assert_eq!(Handle::from_bytes(Handle::to_bytes(None)), None);
}

#[test]
fn no_two_live_records_share_a_slot_across_many_regions() {
    let mut slab = Slab::new();
    let count = 3 * REGION_BYTES / 1024;
    let handles: Vec<_> = (0..count)
        .map(|n| slab.insert(&[&n.to_le_bytes(), &[0; 1016]]))
        .collect();
    let by_handle: HashMap<_, _> = handles.iter().zip(0..count).collect();
    assert_eq!(by_handle.len(), count);
    for (handle, n) in by_handle {
        assert_eq!(slab.get(*handle)[..8], n.to_le_bytes());
    }
    assert_eq!(slab.held_bytes(), (count * 1024) as u64);
}

#[test]
fn freed_slots_are_used_before_new_pages() {
    let mut slab = Slab::new();
    let handles: Vec<_> = (0..10_000).map(|_| slab.insert(&[&[1; 100]])).collect();
    let held = slab.held_bytes();
    for handle in handles.iter().step_by(2) {
        slab.remove(*handle);
    }
    assert_eq!(slab.held_bytes(), held);
    for _ in 0..5_000 {
        slab.insert(&[&[2; 100]]);
    }
    assert_eq!(slab.held_bytes(), held);
}

#[test]
fn one_small_empty_region_stays_mapped_and_serves_any_class() {
    let mut slab = Slab::new();
    for len in [20, 900, 20_000] {
        let handle = slab.insert(&[&vec![3; len]]);
        slab.remove(handle);
        assert!(slab.spare.is_some());
        assert_eq!(slab.held_bytes(), 0);
    }
    let large: Vec<_> = (0..100).map(|_| slab.insert(&[&[4; 1024]])).collect();
    assert!(slab.spare.is_none());
    for handle in large {
        slab.remove(handle);
    }
    assert!(
        slab.spare.is_none(),
        "100 KiB that were touched are unmapped"
    );
}

/// Pages of a region that are in memory, as the kernel says.
fn resident_pages(region: &Region) -> usize {
    let pages = region.bytes().len() / PAGE_BYTES;
    let first = region.bytes().as_ptr().addr() / PAGE_BYTES;
    let mut entries = vec![0; pages * size_of::<u64>()];
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let offset = (first * size_of::<u64>()) as u64;
    pagemap.read_exact_at(&mut entries, offset).unwrap();
    let (entries, _) = entries.as_chunks();
    let present = |entry: &&[u8; 8]| u64::from_le_bytes(**entry) >> 63 != 0;
    entries.iter().filter(present).count()
}

#[test]
fn a_supplied_slab_keeps_its_records_and_gives_back_the_pages_that_none_has_used() {
    let mut model = Model::new();
    let supply = Supply::start().unwrap();
    for (seed, len) in [40, 900, 9_000].into_iter().cycle().take(2_000).enumerate() {
        while model.slab.spare.is_none() {
            model.slab.take_supply(&supply);
        }
        model.apply(seed, &Step::Insert(len));
    }
    let resident = |slab: &Slab| -> usize { slab.regions.iter().map(resident_pages).sum() };
    let used = model.slab.held_bytes() / PAGE_BYTES as u64;
    assert!(resident(&model.slab) as u64 > used + 500);
    model.slab.supplied();
    assert_eq!(resident(&model.slab) as u64, used);
    assert!(model.slab.spare.is_none());
    model.check();
}

//! Torn and damaged tails, and power losses.

use dormouse_wal::{Durability, OpenError};
use proptest::prelude::*;

use crate::{
    disk::Disk,
    harness::{config, marks, open, read, small_segments, write},
};

/// A disk whose last segment has five records, and the segment's name.
fn written() -> (Disk, String) {
    let disk = Disk::default();
    let journal = open(&disk, config());
    for mark in 1..=5 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    let name = disk.last_segment();
    drop(journal);
    (disk, name)
}

fn is_prefix(found: &[u64]) -> bool {
    found.iter().copied().eq(1..=found.len() as u64)
}

#[test]
fn the_last_segment_cut_at_any_byte_gives_the_records_before_the_cut() {
    let (disk, name) = written();
    let bytes = disk.bytes(&name);
    let mut counts = Vec::new();
    for cut in 0..=bytes.len() {
        let torn = disk.after_kill();
        torn.set(&name, bytes[..cut].to_vec());
        let found = marks(&torn);
        assert!(is_prefix(&found), "cut at {cut}: {found:?}");
        counts.push(found.len());
        // The next run continues after the cut, and the one after it reads both.
        let journal = open(&torn, config());
        write(&journal, found.len() as u64 + 1, Durability::Os).unwrap();
        drop(journal);
        assert_eq!(marks(&torn).len(), found.len() + 1, "cut at {cut}");
    }
    assert!(counts.is_sorted());
    assert_eq!((counts[0], counts[bytes.len()]), (0, 5));
}

#[test]
fn a_flipped_bit_in_the_last_segment_gives_a_prefix_or_a_refusal_with_file_and_offset() {
    let (disk, name) = written();
    let bytes = disk.bytes(&name);
    let (mut prefixes, mut refusals) = (0, 0);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let damaged = disk.after_kill();
        damaged.set(&name, flipped);
        match read(&damaged, config()) {
            // Only the last record can be taken for a write that did not complete.
            Ok((found, _)) => {
                assert_eq!(found, [1, 2, 3, 4], "bit {bit}");
                prefixes += 1;
            }
            Err(OpenError::Damaged { file, offset, .. }) => {
                assert_eq!(file, name);
                assert!(offset <= bit as u64 / 8);
                refusals += 1;
            }
            // A flip in the format number of the header reads as a newer format.
            Err(OpenError::NewerFormat { .. }) => refusals += 1,
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
    // 8 bytes of payload and 9 of frame are the last record.
    assert_eq!((prefixes, refusals), (17 * 8, (bytes.len() - 17) * 8));
}

#[test]
fn a_cut_or_a_flip_in_an_earlier_segment_is_refused() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    for mark in 1..=40 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    drop(journal);
    let name = disk.names().remove(0);
    let bytes = disk.bytes(&name);
    for cut in 0..bytes.len() {
        let torn = disk.after_kill();
        torn.set(&name, bytes[..cut].to_vec());
        match read(&torn, small_segments()).unwrap_err() {
            OpenError::Damaged { file, .. } => assert_eq!(file, name, "cut at {cut}"),
            // A cut between two records leaves a segment that looks complete.
            OpenError::NotContinued(_) => {}
            error => panic!("cut at {cut}: {error}"),
        }
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let damaged = disk.after_kill();
        damaged.set(&name, flipped);
        let error = read(&damaged, small_segments()).unwrap_err();
        assert!(error.to_string().contains(&name), "bit {bit}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A power loss keeps what was acknowledged in mode `fsync`, and everything before it that was
    /// written, whatever else it keeps.
    #[test]
    fn a_power_loss_loses_nothing_that_was_synced(
        runs in prop::collection::vec((prop::collection::vec(any::<bool>(), 0..20), 0usize..200), 1..4),
        segment_bytes in 200u64..600,
    ) {
        let mut disk = Disk::default();
        for (syncs, kept) in runs {
            let config = dormouse_wal::Config { segment_bytes, ..config() };
            let before = read(&disk, config.clone()).unwrap().0.len() as u64;
            let journal = open(&disk, config);
            let mut synced = before;
            for (mark, sync) in (before + 1..).zip(syncs) {
                let durability = if sync { Durability::Fsync } else { Durability::Os };
                write(&journal, mark, durability).unwrap();
                synced = if sync { mark } else { synced };
            }
            // The last segment only: a segment before it is synced by the thread some time later,
            // and a power loss before that is refused as damage.
            drop(journal);
            let after = disk.after_power_loss(kept);
            disk = match read(&after, crate::harness::config()) {
                Ok(_) => after,
                Err(OpenError::Damaged { .. } | OpenError::Missing(_)) => disk.after_power_loss(usize::MAX),
                Err(error) => panic!("{error}"),
            };
            let found = marks(&disk);
            prop_assert!(is_prefix(&found), "{found:?}");
            prop_assert!(found.len() as u64 >= synced, "{found:?}, {synced} synced");
        }
    }
}

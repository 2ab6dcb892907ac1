//! Torn and damaged tails, and power losses.

use std::sync::Arc;

use dormouse_wal::{Config, Durability, Journal, OpenError, Recovery};
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

/// Disks after a power loss that came before any sync of several full segments.
fn lost_before_syncs() -> Vec<Disk> {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    disk.with_faults(|faults| faults.sync_stalls = true);
    for mark in 1..=60 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    let images = (0..200).map(|seed| disk.after_power_loss_with_holes(seed));
    let images = images.collect();
    disk.with_faults(|faults| faults.sync_stalls = false);
    assert!(disk.names_with(".wal").len() > 3, "{:?}", disk.names());
    images
}

#[test]
fn a_power_loss_before_full_segments_are_synced_is_cut_in_the_next_boot_only() {
    let (mut cut, mut refused) = (0, 0);
    for after in lost_before_syncs() {
        // The process was killed, and the machine was not: no written byte can be missing.
        refused += usize::from(read(&after, small_segments()).is_err());
        let next_boot = || Config {
            boot: 2,
            ..small_segments()
        };
        let (found, recovered) = read(&after, next_boot()).unwrap();
        assert!(is_prefix(&found), "{found:?}");
        cut += usize::from(found.len() < 60);
        drop(recovered.start(60, Box::new(|| ())).unwrap());
        assert_eq!(read(&after, next_boot()).unwrap().0, found);
    }
    assert!(cut > 100 && refused > 100, "{cut} cut, {refused} refused");
}

#[test]
fn a_flipped_bit_in_a_synced_record_is_refused_in_every_boot() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    for mark in 1..=30 {
        write(&journal, mark, Durability::Fsync).unwrap();
    }
    drop(journal);
    let next_boot = Config {
        boot: 2,
        ..small_segments()
    };
    let mut refused = 0;
    for name in disk.names() {
        let bytes = disk.bytes(&name);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let damaged = disk.after_kill();
            damaged.set(&name, flipped);
            match read(&damaged, next_boot.clone()) {
                // That the last record is synced is stated after it only.
                Ok((found, _)) => assert!(is_prefix(&found) && found.len() >= 29, "{found:?}"),
                Err(error) => {
                    assert!(error.to_string().contains(".wal`"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 28 * 17 * 8, "{refused}");
}

/// What a run does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Write(Durability),
    Snapshot,
}

fn action() -> impl Strategy<Value = Action> {
    let modes = vec![
        Durability::None,
        Durability::Buffered,
        Durability::Os,
        Durability::Fsync,
    ];
    prop_oneof![
        12 => prop::sample::select(modes).prop_map(Action::Write),
        1 => Just(Action::Snapshot),
    ]
}

/// The marks that must be on a disk.
#[derive(Debug, Default)]
struct Expected {
    /// In order; those of the runs before are on the disk.
    written: Vec<u64>,
    synced: Vec<u64>,
    last: u64,
}

impl Expected {
    fn run(&mut self, journal: &Journal, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Write(durability) => {
                    self.last += 1;
                    write(journal, self.last, durability).unwrap();
                    if durability > Durability::None {
                        self.written.push(self.last);
                    }
                    if durability == Durability::Fsync {
                        self.synced.clone_from(&self.written);
                    }
                }
                Action::Snapshot => {
                    let complete = journal
                        .snapshot(journal.visible())
                        .unwrap()
                        .finish()
                        .unwrap();
                    journal.remove_before(&complete).unwrap();
                }
            }
        }
    }

    /// The records above the snapshot are the first that were written above it, among them all that
    /// were synced.
    fn check(&mut self, found: &[u64], snapshot: u64) {
        let above = |marks: &[u64]| -> Vec<u64> {
            marks
                .iter()
                .copied()
                .filter(|mark| *mark > snapshot)
                .collect()
        };
        let (found, written) = (above(found), above(&self.written));
        assert!(written.starts_with(&found), "{written:?}, {found:?}");
        assert!(
            found.starts_with(&above(&self.synced)),
            "{:?}, {found:?}",
            self.synced
        );
        self.written
            .retain(|mark| *mark <= snapshot || found.contains(mark));
        self.synced.clone_from(&self.written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A power loss keeps what was acknowledged in mode `fsync`, and everything before it that was
    /// written, whichever other blocks and names it keeps.
    #[test]
    fn a_power_loss_loses_nothing_that_was_synced(
        runs in prop::collection::vec((prop::collection::vec(action(), 0..30), any::<u64>()), 1..5),
        segment_bytes in 100u64..600,
    ) {
        let mut disk = Disk::default();
        let mut expected = Expected::default();
        for (boot, (actions, seed)) in (1..).zip(runs) {
            let config = Config { segment_bytes, boot, ..config() };
            let recovery = Recovery::open(Arc::new(disk.clone()), config.clone()).unwrap();
            let snapshot = recovery.snapshot_mark().unwrap_or(0);
            let (found, recovered) = read(&disk, config).unwrap();
            expected.check(&found, snapshot);
            prop_assert!(recovered.mark_bound() >= expected.last);
            expected.last = recovered.mark_bound();
            let journal = recovered.start(expected.last, Box::new(|| ())).unwrap();
            expected.run(&journal, &actions);
            // The threads of the journal may be syncing.
            disk = disk.after_power_loss_with_holes(seed);
        }
        let config = Config { boot: 9, ..config() };
        let recovery = Recovery::open(Arc::new(disk.clone()), config.clone()).unwrap();
        let snapshot = recovery.snapshot_mark().unwrap_or(0);
        expected.check(&read(&disk, config).unwrap().0, snapshot);
    }
}

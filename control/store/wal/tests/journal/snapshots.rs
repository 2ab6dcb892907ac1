//! Snapshots: complete or absent, and the segments that they make removable.

use std::sync::Arc;

use dormouse_wal::{Durability, Journal, OpenError, Recovery};

use crate::{
    disk::Disk,
    harness::{KIND, config, open, small_segments, write},
};

const SNAPSHOT_KIND: u8 = 2;

fn write_marks(journal: &Journal, marks: std::ops::RangeInclusive<u64>) {
    for mark in marks {
        write(journal, mark, Durability::Os).unwrap();
    }
}

/// Takes a snapshot that says its mark, and removes the segments before it.
fn snapshot(journal: &Journal, mark: u64) {
    let mut writer = journal.snapshot(mark).unwrap();
    writer
        .append(SNAPSHOT_KIND, |out| {
            out.extend_from_slice(&mark.to_le_bytes());
        })
        .unwrap();
    let complete = writer.finish().unwrap();
    assert_eq!(complete.mark, mark);
    journal.remove_before(&complete).unwrap();
}

/// The mark that the snapshot says, and the marks of the log.
fn recover(disk: &Disk) -> Result<(Option<u64>, Vec<u64>), OpenError> {
    let recovery = Recovery::open(Arc::new(disk.clone()), small_segments())?;
    let (mut snapshot, mut log) = (None, Vec::new());
    recovery.replay(&mut |records| {
        for record in records {
            let mark = u64::from_le_bytes(record.payload.try_into().unwrap());
            assert_eq!(record.in_snapshot, record.kind == SNAPSHOT_KIND);
            match record.kind {
                SNAPSHOT_KIND => snapshot = Some(mark),
                KIND => log.push(mark),
                kind => panic!("kind {kind}"),
            }
        }
        Ok(())
    })?;
    Ok((snapshot, log))
}

#[test]
fn a_snapshot_replaces_the_segments_before_its_mark() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    write_marks(&journal, 1..=100);
    assert!(journal.removable_bytes(50) > 0);
    assert!(journal.removable_bytes(50) < journal.removable_bytes(100));
    for mark in [50, 90] {
        snapshot(&journal, mark);
        assert_eq!(journal.removable_bytes(mark), 0);
        let (found, log) = recover(&disk.after_kill()).unwrap();
        assert_eq!(found, Some(mark));
        assert!(log[0] <= mark + 1 && log[0] + 20 > mark, "{log:?}");
        assert_eq!(log.last(), Some(&100));
    }
    write_marks(&journal, 101..=110);
    drop(journal);
    let journal = open_after(&disk, 110);
    write_marks(&journal, 111..=120);
    assert_eq!(recover(&disk).unwrap().1.last(), Some(&120));
    assert_eq!(disk.names_with(".snap").len(), 1);
}

fn open_after(disk: &Disk, mark: u64) -> Journal {
    let recovery = Recovery::open(Arc::new(disk.clone()), small_segments()).unwrap();
    let recovered = recovery.replay(&mut |_| Ok(())).unwrap();
    recovered.start(mark, Box::new(|| ())).unwrap()
}

#[test]
fn an_interrupted_snapshot_changes_nothing_and_is_removed_at_the_next_start() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    write_marks(&journal, 1..=100);
    let writer = journal.snapshot(50).unwrap();
    let killed = disk.after_kill();
    drop(writer);
    assert!(disk.names_with(".tmp").is_empty());
    assert_eq!(killed.names_with(".tmp").len(), 1);
    assert_eq!(recover(&killed).unwrap(), (None, (1..=100).collect()));
    drop(open_after(&killed, 100));
    assert!(killed.names_with(".tmp").is_empty());
}

#[test]
fn a_snapshot_is_durable_before_any_segment_is_removed() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    write_marks(&journal, 1..=100);
    write(&journal, 101, Durability::Fsync).unwrap();
    snapshot(&journal, 90);
    let (found, log) = recover(&disk.after_power_loss(0)).unwrap();
    assert_eq!((found, log.last()), (Some(90), Some(&101)));
}

#[test]
fn a_flip_or_a_cut_in_a_snapshot_is_refused() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    write_marks(&journal, 1..=3);
    snapshot(&journal, 3);
    drop(journal);
    let name = disk.names_with(".snap").remove(0);
    let bytes = disk.bytes(&name);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        disk.set(&name, flipped);
        assert!(recover(&disk).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        disk.set(&name, bytes[..cut].to_vec());
        assert!(recover(&disk).is_err(), "cut at {cut}");
    }
}

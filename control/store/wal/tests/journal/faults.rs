//! Disks that refuse writes and syncs.

use dormouse_wal::Durability;

use crate::{
    disk::{Disk, Opening},
    harness::{append, config, marks, open, read, run, small_segments, write},
};

#[test]
fn partial_and_interrupted_writes_continue() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    disk.with_faults(|faults| {
        faults.write_max = Some(3);
        faults.interrupts = 5;
    });
    for mark in 1..=10 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    assert_eq!(marks(&disk), (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_ends_acknowledgements_for_ever_and_loses_nothing_acknowledged() {
    // Every amount of space: between records, inside one, and where the next segment is created.
    for space in 0..400 {
        let disk = Disk::default();
        let journal = open(&disk, small_segments());
        disk.with_faults(|faults| faults.space = Some(space));
        let acknowledged = (1..=40)
            .take_while(|&mark| write(&journal, mark, Durability::Os).is_ok())
            .count();
        assert!(acknowledged < 40);
        let reason = journal.failure().unwrap().reason();
        assert!(reason.contains("failed to write `"), "{reason}");
        disk.with_faults(|faults| faults.space = None);
        write(&journal, 41, Durability::Os).unwrap_err();
        write(&journal, 42, Durability::None).unwrap_err();
        assert!(journal.visible() <= acknowledged as u64);
        // There is space again, but nothing may follow what is missing.
        journal.close().unwrap_err();
        drop(journal);
        let found = marks(&disk.after_kill());
        assert!(found.len() >= acknowledged, "{acknowledged}: {found:?}");
        assert!(found.iter().copied().eq(1..=found.len() as u64));
    }
}

#[test]
fn a_failed_sync_ends_acknowledgements_even_if_later_syncs_would_succeed() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    write(&journal, 1, Durability::Fsync).unwrap();
    disk.with_faults(|faults| faults.sync_fails = true);
    let error = write(&journal, 2, Durability::Fsync).unwrap_err();
    assert!(
        error.reason().contains("injected EIO"),
        "{}",
        error.reason()
    );
    disk.with_faults(|faults| faults.sync_fails = false);
    for durability in [Durability::None, Durability::Os, Durability::Fsync] {
        write(&journal, 3, durability).unwrap_err();
    }
    journal.close().unwrap_err();
    assert_eq!(journal.visible(), 1);
}

#[test]
fn a_failure_ends_every_commit_that_waits() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    disk.with_faults(|faults| faults.space = Some(10));
    let tickets: Vec<_> = (1..=8)
        .map(|mark| append(&journal, mark, Durability::Os))
        .collect();
    run(async {
        for ticket in tickets {
            journal.committed(ticket).await.unwrap_err();
        }
    });
}

#[test]
fn a_failed_seal_of_a_full_segment_is_a_failure() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    disk.with_faults(|faults| faults.sync_fails = true);
    for mark in 1..=40 {
        // The thread syncs the full segment at some time: the writes before that succeed.
        let _ = write(&journal, mark, Durability::Os);
    }
    crate::harness::eventually("the failure is known", || journal.failure().is_some());
}

#[test]
fn a_segment_that_cannot_be_created_ends_acknowledgements() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    disk.with_faults(|faults| faults.refused = Some(Opening::Create));
    let acknowledged = (1..=40)
        .take_while(|&mark| write(&journal, mark, Durability::Os).is_ok())
        .count();
    assert!(acknowledged < 40);
    let reason = journal.failure().unwrap().reason();
    assert!(reason.contains("failed to create `"), "{reason}");
    assert!(marks(&disk.after_kill()).len() >= acknowledged);
}

#[test]
fn a_directory_that_cannot_be_read_is_refused_and_left_as_it_is() {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    for mark in 1..=40 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    drop(journal);
    disk.with_faults(|faults| faults.refused = Some(Opening::Read));
    let error = read(&disk, config()).unwrap_err().to_string();
    assert!(error.contains("failed to read `"), "{error}");
    disk.with_faults(|faults| faults.refused = None);
    assert_eq!(marks(&disk), (1..=40).collect::<Vec<_>>());
}

//! Records, marks and runs over restarts.

use dormouse_wal::{Config, Durability, PreviousRun, files::Directory};
use proptest::prelude::*;

use crate::{
    disk::Disk,
    harness::{
        append, config, eventually, marks, open, previous_run, read, run, small_segments, write,
    },
};

#[test]
fn records_are_read_in_order_over_segments_and_restarts() {
    let disk = Disk::default();
    for start in [0, 50, 100] {
        let journal = open(&disk, small_segments());
        for mark in start + 1..=start + 50 {
            write(&journal, mark, Durability::Os).unwrap();
            assert_eq!(journal.visible(), mark);
        }
    }
    assert!(disk.names().len() > 9, "{:?}", disk.names());
    assert_eq!(marks(&disk), (1..=150).collect::<Vec<_>>());
}

#[test]
fn a_directory_of_the_file_system_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    for start in [0, 2] {
        let files = std::sync::Arc::new(Directory::open(directory.path()).unwrap());
        let mut count = 0;
        let recovery = dormouse_wal::Recovery::open(files, small_segments()).unwrap();
        let recovered = recovery.replay(&mut |records| {
            count += records.len() as u64;
            Ok(())
        });
        assert_eq!(count, start);
        let journal = recovered.unwrap().start(start, Box::new(|| ())).unwrap();
        write(&journal, start + 1, Durability::Os).unwrap();
        write(&journal, start + 2, Durability::Fsync).unwrap();
    }
}

#[test]
fn zeros_that_are_reserved_for_synced_records_are_no_damage() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    for mark in 1..=3 {
        write(&journal, mark, Durability::Fsync).unwrap();
    }
    let name = disk.last_segment();
    assert!(disk.bytes(&name).len() > 1 << 20);
    for after in [disk.after_kill(), disk.after_power_loss(0)] {
        drop(open(&after, config()));
        assert!(disk.bytes(&name).starts_with(&after.bytes(&name)));
        assert!(after.bytes(&name).len() < 1_000);
        assert_eq!(marks(&after), [1, 2, 3]);
    }
    journal.close().unwrap();
    assert!(disk.bytes(&name).len() < 1_000);
    assert_eq!(marks(&disk), [1, 2, 3]);
}

#[test]
fn a_buffered_record_is_written_although_no_task_waits_for_it() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    for mark in 1..=3 {
        write(&journal, mark, Durability::Buffered).unwrap();
    }
    assert_eq!(journal.visible(), 3);
    eventually("the records are written", || marks(&disk) == [1, 2, 3]);
}

#[test]
fn a_record_in_mode_none_is_not_written_and_keeps_its_place() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    let strict = append(&journal, 1, Durability::Os);
    let none = append(&journal, 2, Durability::None);
    assert_eq!(journal.visible(), 0);
    run(async {
        journal.committed(none).await.unwrap();
        journal.committed(strict).await.unwrap();
    });
    assert_eq!(journal.visible(), 2);
    assert_eq!(marks(&disk), [1]);
}

#[test]
fn the_end_of_a_run_is_known_to_the_next() {
    let disk = Disk::default();
    assert_eq!(previous_run(&disk, config()), PreviousRun::None);
    let journal = open(&disk, config());
    write(&journal, 1, Durability::Os).unwrap();
    drop(journal);
    assert_eq!(previous_run(&disk, config()), PreviousRun::SameBoot);
    for boot in [2, 0] {
        let config = Config { boot, ..config() };
        assert_eq!(previous_run(&disk, config), PreviousRun::OtherBoot);
    }
    let journal = open(&disk, config());
    write(&journal, 2, Durability::None).unwrap();
    // Segments and their headers are enough to know it: a snapshot removes the older ones.
    let snapshot = journal.snapshot(2).unwrap().finish().unwrap();
    journal.remove_before(&snapshot).unwrap();
    let killed = disk.after_power_loss(0);
    assert_eq!(previous_run(&killed, config()), PreviousRun::SameBoot);
    assert!(read(&killed, config()).unwrap().1.mark_bound() > 2);
    journal.close().unwrap();
    drop(journal);
    let (_, recovered) = read(&disk, config()).unwrap();
    assert_eq!(recovered.previous_run(), PreviousRun::Closed);
    assert_eq!(recovered.mark_bound(), 2);
}

#[test]
fn a_mark_above_the_ceiling_is_acknowledged_only_after_the_ceiling_is_synced() {
    let disk = Disk::default();
    let journal = open(&disk, config());
    let step = read(&disk, config()).unwrap().1.mark_bound();
    // The next ceiling is written when half of the marks are used; no record waits for it.
    write(&journal, step / 2 + 1, Durability::None).unwrap();
    eventually("the ceiling rises", || {
        read(&disk.after_power_loss(0), config())
            .unwrap()
            .1
            .mark_bound()
            > step
    });
    // A jump beyond every ceiling waits.
    write(&journal, 10 * step, Durability::None).unwrap();
    let after = disk.after_power_loss(0);
    assert!(read(&after, config()).unwrap().1.mark_bound() >= 10 * step);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written in which mode, after a kill every record is there whose mode is `os` or
    /// `fsync`, the records are a part of what was written, in order, and no answered mark is above
    /// the bound.
    #[test]
    fn a_kill_loses_nothing_that_was_acknowledged(
        runs in prop::collection::vec(prop::collection::vec(0u8..4, 0..30), 1..4),
        segment_bytes in 80u64..600,
    ) {
        let mut disk = Disk::default();
        let mut mark = 0;
        let (mut strict, mut written) = (Vec::new(), Vec::new());
        for modes in runs {
            let config = Config { segment_bytes, ..config() };
            let (_, recovered) = read(&disk, config).unwrap();
            mark = recovered.mark_bound().max(mark);
            let journal = recovered.start(mark, Box::new(|| ())).unwrap();
            for mode in modes {
                mark += 1;
                let durability = [
                    Durability::None,
                    Durability::Buffered,
                    Durability::Os,
                    Durability::Fsync,
                ][usize::from(mode)];
                write(&journal, mark, durability).unwrap();
                if durability >= Durability::Os {
                    strict.push(mark);
                }
                if durability > Durability::None {
                    written.push(mark);
                }
            }
            disk = disk.after_kill();
        }
        let found = marks(&disk);
        prop_assert!(strict.iter().all(|mark| found.contains(mark)), "{strict:?} {found:?}");
        prop_assert!(found.iter().all(|mark| written.contains(mark)), "{written:?} {found:?}");
        prop_assert!(found.is_sorted_by(|a, b| a < b));
        prop_assert!(read(&disk, config()).unwrap().1.mark_bound() >= mark);
    }
}

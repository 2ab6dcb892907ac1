//! The journal's file under disk failures and concurrent processes.

use super::*;
use crate::prefix::Suffix;
use crate::record::{FRAME_HEADER_LEN, encode};

fn records(suffixes: std::ops::Range<u32>) -> Vec<Record> {
    suffixes.map(|n| Record::Live(Suffix(n))).collect()
}

fn read(path: &Path) -> Vec<Record> {
    scan(&fs::read(path).unwrap()).unwrap().0
}

#[test]
fn a_failed_write_leaves_no_trace_and_the_next_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut journal = Journal::open(&path).unwrap().journal;
    journal.append(&records(0..3)).unwrap();
    let writable = journal.swap_file(File::open(&path).unwrap());
    assert!(journal.append(&records(3..5)).is_err());
    // A failed write may leave such bytes.
    let mut torn = Vec::new();
    encode(&Record::Live(Suffix(3)), 3, &mut torn);
    writable.write_all_at(&torn, journal.length()).unwrap();
    assert!(journal.append(&records(3..5)).is_err());
    journal.swap_file(writable);
    journal.append(&records(7..9)).unwrap();
    assert_eq!(read(&path), [records(0..3), records(7..9)].concat());
}

#[test]
fn unsynced_records_are_written_again_after_a_failed_sync() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut journal = Journal::open(&path).unwrap().journal;
    journal.append(&records(0..3)).unwrap();
    let synced = journal.length();
    journal.write(&records(3..5)).unwrap();
    let writable = journal.swap_file(File::open(&path).unwrap());
    assert!(journal.append(&records(5..6)).is_err());
    // The disk's content of a page whose write-back failed and which the kernel has evicted since.
    let lost = usize::try_from(journal.length() - synced).unwrap();
    writable.write_all_at(&vec![0; lost], synced).unwrap();
    journal.swap_file(writable);
    journal.append(&records(7..9)).unwrap();
    assert_eq!(read(&path), [records(0..5), records(7..9)].concat());
}

#[test]
fn a_replacement_is_used_only_after_the_rename() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut old = Journal::open(&path).unwrap().journal;
    old.append(&records(0..3)).unwrap();
    let mut new = Journal::create_replacement(&path, &records(5..6)).unwrap();
    new.append(&records(6..7)).unwrap();
    assert_eq!(read(&path), records(0..3));
    new.replace().unwrap();
    assert_eq!(read(&path), records(5..7));
    assert!(!is_at(&old.file, &path).unwrap());
    drop(old);
    assert!(Journal::open(&path).is_err(), "the new one is locked");
    // The file of an interrupted compaction is overwritten.
    fs::write(replacement_path(&path), [7; 100]).unwrap();
    Journal::create_replacement(&path, &records(0..1)).unwrap();
}

#[test]
fn a_record_of_a_later_version_is_refused_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut bytes = Vec::new();
    encode(&Record::Live(Suffix(0)), 0, &mut bytes);
    let second = bytes.len();
    encode(&Record::Live(Suffix(1)), 1, &mut bytes);
    let body = second + FRAME_HEADER_LEN;
    bytes[body + 8] = 200;
    let checksum = crc32c::crc32c(&bytes[body..]).to_le_bytes();
    bytes[second + 4..body].copy_from_slice(&checksum);
    fs::write(&path, &bytes).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.contains("later version"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn the_file_is_allocated_in_steps_and_its_zeros_are_not_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut journal = Journal::open(&path).unwrap().journal;
    for n in 0..100 {
        journal.append(&records(n..n + 1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), GROWTH);
    }
    drop(journal);
    let recovered = Journal::open(&path).unwrap();
    assert_eq!((recovered.records.len(), recovered.cut_bytes), (100, 0));
}

//! Directories that are refused, each with the way out.

use std::sync::Arc;

use dormouse_wal::{
    Durability, Identity, OpenError, Record, Recovery, Refused,
    frame::OVERHEAD_BYTES,
    segment::{FileType, HEADER_BYTES, Header, Place, segment_name},
};

use crate::{
    disk::Disk,
    harness::{IDENTITY, config, open, read, small_segments, write},
};

fn written() -> Disk {
    let disk = Disk::default();
    let journal = open(&disk, small_segments());
    for mark in 1..=40 {
        write(&journal, mark, Durability::Os).unwrap();
    }
    drop(journal);
    disk
}

fn refusal(disk: &Disk) -> String {
    read(disk, small_segments()).unwrap_err().to_string()
}

#[test]
fn a_missing_segment_is_named() {
    let disk = written();
    for missing in [1, 2] {
        let gap = Disk::default();
        for name in disk.names() {
            if name != segment_name(missing) {
                gap.set(&name, disk.bytes(&name));
            }
        }
        let refusal = refusal(&gap);
        assert!(refusal.contains(&segment_name(missing)), "{refusal}");
        assert!(refusal.contains("restore a snapshot"), "{refusal}");
    }
}

#[test]
fn a_segment_of_another_cluster_is_refused() {
    let disk = written();
    let other = Header {
        file_type: FileType::Segment,
        identity: Identity {
            cluster: 0xbad,
            ..IDENTITY
        },
        sequence: 2,
        position: 0,
        mark: 0,
        ceiling: 0,
        boot: 0,
        previous: 0,
        place: Place::Unstated,
    };
    let mut bytes = disk.bytes(&segment_name(2));
    let header = Header::decode(&bytes, FileType::Segment, "2").unwrap();
    let other = Header {
        position: header.position,
        mark: header.mark,
        ceiling: header.ceiling,
        boot: header.boot,
        previous: header.previous,
        place: header.place,
        ..other
    };
    bytes[..HEADER_BYTES].copy_from_slice(&other.encode());
    disk.set(&segment_name(2), bytes);
    let refusal = refusal(&disk);
    assert!(refusal.contains("cluster bad"), "{refusal}");
    assert!(refusal.contains("move the file away"), "{refusal}");
}

#[test]
fn a_newer_format_is_refused() {
    let disk = written();
    let mut bytes = disk.bytes(&segment_name(1));
    bytes[8] = 3;
    disk.set(&segment_name(1), bytes);
    let error = read(&disk, small_segments()).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { format: 3, .. }));
    assert!(
        error
            .to_string()
            .contains("start the release that wrote it")
    );
}

#[test]
fn a_segment_in_the_place_of_another_is_refused() {
    let disk = written();
    disk.set(&segment_name(2), disk.bytes(&segment_name(3)));
    let refusal = refusal(&disk);
    assert!(refusal.contains("does not continue"), "{refusal}");
}

#[test]
fn a_record_that_the_caller_cannot_read_is_named() {
    let disk = written();
    let refused_at = |refused: u64| {
        let recovery = Recovery::open(Arc::new(disk.clone()), config()).unwrap();
        let mut before = 0;
        let error = recovery.replay(&mut |records: &[Record<'_>]| {
            let index = usize::try_from(refused - before).unwrap();
            before += records.len() as u64;
            match records.get(index) {
                Some(_) => Err(Refused {
                    index,
                    source: "unknown kind".into(),
                }),
                None => Ok(()),
            }
        });
        match error.unwrap_err() {
            OpenError::Record { file, offset, .. } => (file, offset),
            error => panic!("{error}"),
        }
    };
    let record_bytes = (OVERHEAD_BYTES + size_of::<u64>()) as u64;
    let (file, first) = refused_at(0);
    assert_eq!(file, segment_name(1));
    assert_eq!(refused_at(2), (file, first + 2 * record_bytes));
    assert_ne!(refused_at(39).0, segment_name(1));
}

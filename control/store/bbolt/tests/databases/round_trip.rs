//! What the writer writes, the reader reads; whatever is done to the file, the reader ends.

use std::{
    collections::BTreeMap,
    io::{Cursor, Write},
};

use dormouse_bbolt::{Database, Shape, WriteError, Writer};
use proptest::prelude::*;

type Bucket = BTreeMap<Vec<u8>, Vec<u8>>;
type Buckets = BTreeMap<Vec<u8>, Bucket>;

fn write_to<W: Write>(mut writer: Writer<W>, buckets: &Buckets) -> Result<(W, Shape), WriteError> {
    for (name, entries) in buckets {
        let mut bucket = writer.bucket(name);
        for (key, value) in entries {
            bucket.entry(key, value)?;
        }
        writer = bucket.finish()?;
    }
    writer.finish()
}

fn database(buckets: &Buckets) -> Vec<u8> {
    let (_, shape) = write_to(Writer::measure(), buckets).unwrap();
    let (bytes, written) = write_to(Writer::new(Vec::new(), shape).unwrap(), buckets).unwrap();
    assert_eq!((written, bytes.len() as u64), (shape, shape.bytes()));
    bytes
}

/// The entries of the named bucket, without the values of damaged ones.
fn read(bytes: Vec<u8>, name: &[u8]) -> Option<Bucket> {
    let mut database = Database::open(Cursor::new(bytes)).ok()?;
    let entries = database.bucket(name).ok()??;
    entries
        .map(|entry| entry.map(|entry| (entry.key, entry.value)).ok())
        .collect()
}

fn bucket() -> impl Strategy<Value = Bucket> {
    let key = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 1..20),
        1 => prop::collection::vec(any::<u8>(), 1..3_000),
    ];
    let value = prop_oneof![
        30 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (0..20_000_usize).prop_map(|len| vec![b'v'; len]),
    ];
    prop::collection::btree_map(key, value, 0..300)
}

fn buckets() -> impl Strategy<Value = Buckets> {
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..10), bucket(), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(buckets in buckets()) {
        let bytes = database(&buckets);
        for (name, entries) in &buckets {
            prop_assert_eq!(read(bytes.clone(), name), Some(entries.clone()));
        }
    }

    #[test]
    fn a_damaged_file_is_read_to_an_end(
        buckets in buckets(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut bytes = database(&buckets);
        // The metas have a checksum; the rest has none, and may say anything.
        let start = 2 * dormouse_bbolt::PAGE_BYTES;
        for (at, byte) in damage {
            let at = start + at.index(bytes.len() - start);
            bytes[at] = byte;
        }
        let entries_max: usize = bytes.len() / 16;
        for name in buckets.keys() {
            let entries = read(bytes.clone(), name);
            prop_assert!(entries.is_none_or(|entries| entries.len() <= entries_max));
        }
    }
}

#[test]
fn a_tree_of_three_levels_is_read() {
    let entries: Bucket = (0..60_000_u32)
        .map(|n| (n.to_be_bytes().repeat(30), n.to_le_bytes().to_vec()))
        .collect();
    let buckets = Buckets::from([(b"key".to_vec(), entries.clone())]);
    assert_eq!(read(database(&buckets), b"key"), Some(entries));
}

#[test]
fn unordered_and_oversized_entries_are_refused() {
    let mut bucket = Writer::measure().bucket(b"key");
    bucket.entry(b"b", b"").unwrap();
    for (key, value) in [(&b"b"[..], 1), (b"a", 1)] {
        let refused = bucket.entry(key, &vec![0; value]).unwrap_err();
        assert!(matches!(refused, WriteError::NotAscending), "{refused}");
    }
    for key in [0, 32_769] {
        let refused = bucket.entry(&vec![b'c'; key], b"").unwrap_err();
        assert!(matches!(refused, WriteError::Length { .. }), "{refused}");
    }
    bucket.entry(&vec![b'c'; 32_768], b"").unwrap();
    let mut buckets = bucket.finish().unwrap().bucket(b"a");
    buckets.entry(b"k", b"").unwrap();
    assert!(matches!(buckets.finish(), Err(WriteError::NotAscending)));
}

#[test]
fn other_entries_than_the_measured_ones_are_refused() {
    let one = |len| {
        Buckets::from([(
            b"key".to_vec(),
            Bucket::from([(b"k".to_vec(), vec![0; len])]),
        )])
    };
    let (_, shape) = write_to(Writer::measure(), &one(100)).unwrap();
    let written = write_to(Writer::new(Vec::new(), shape).unwrap(), &one(5_000));
    assert!(matches!(written, Err(WriteError::Shape)));
}

#[test]
fn a_failing_output_is_an_error() {
    let (_, shape) = write_to(Writer::measure(), &Buckets::new()).unwrap();
    let mut space = [0; 5_000];
    assert!(matches!(
        Writer::new(&mut space[..], shape),
        Err(WriteError::Io(_))
    ));
}

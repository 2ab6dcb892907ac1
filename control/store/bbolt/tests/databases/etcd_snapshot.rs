//! A database that etcd wrote: the snapshot of Debian's etcd 3.4.23 after 159 revisions.

use std::io::{Cursor, Read};

use dormouse_bbolt::{Database, Entry, ReadError};

/// The snapshot without the SHA-256 behind it.
fn snapshot() -> Vec<u8> {
    let mut bytes = Vec::new();
    let compressed = include_bytes!("../data/etcd-3.4.db.gz");
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_end(&mut bytes)
        .unwrap();
    bytes.truncate(bytes.len() - 32);
    bytes
}

fn entries(database: &mut Database<Cursor<Vec<u8>>>, bucket: &str) -> Vec<Entry> {
    let entries = database.bucket(bucket.as_bytes()).unwrap();
    entries
        .expect("a bucket of etcd")
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn the_buckets_of_etcd_are_read() {
    let bytes = snapshot();
    let mut database = Database::open(Cursor::new(bytes.clone())).unwrap();
    assert_eq!(database.bytes(), bytes.len() as u64);
    let keys = entries(&mut database, "key");
    let big: Vec<_> = keys
        .iter()
        .filter(|entry| entry.value.len() > 9_000)
        .collect();
    assert_eq!(big.len(), 1, "a value that takes several pages");
    // A revision: main number, `_`, number inside the transaction, `t` for a deletion.
    assert!(
        keys.iter()
            .all(|entry| matches!(entry.key.len(), 17 | 18) && !entry.is_bucket)
    );
    assert_eq!(entries(&mut database, "lease").len(), 1);
    assert_eq!(entries(&mut database, "authUsers")[0].key, b"u");
    assert_eq!(entries(&mut database, "alarm"), []);
    assert!(database.bucket(b"no such bucket").unwrap().is_none());
}

#[test]
fn a_file_that_is_cut_off_or_no_database_is_refused() {
    let bytes = snapshot();
    let open = |bytes: &[u8]| Database::open(Cursor::new(bytes.to_vec()));
    assert!(matches!(open(&[]), Err(ReadError::NoMeta)));
    assert!(matches!(open(&[7; 9_000]), Err(ReadError::NoMeta)));
    let mut short = open(&bytes[..9_000]).unwrap();
    let read = short.bucket(b"key");
    assert!(matches!(read, Err(ReadError::Damaged { .. })), "{read:?}");
}

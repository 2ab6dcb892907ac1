//! What is written is read, and a database of something else is refused.

use std::io::{Cursor, Write};

use bytes::Bytes;
use dormouse_snapshot::{
    Auth, Checksummed, ExportError, Head, ImportError, Integrity, KeyValue, Lease, Shape, Snapshot,
    Version, Writer, read, write,
};
use proptest::prelude::*;
use prost::Message;

/// The versions in the order of their revisions.
fn versions(snapshot: &Snapshot) -> impl Iterator<Item = Version> {
    let mut pairs: Vec<_> = snapshot.pairs.values().collect();
    pairs.sort_by_key(|pair| pair.mod_revision);
    pairs.into_iter().map(|pair| Version {
        revision: pair.mod_revision,
        encoded: pair.encode_to_vec().into(),
    })
}

fn write_to<W: Write>(writer: Writer<W>, snapshot: &Snapshot) -> Result<(W, Shape), ExportError> {
    write(writer, &snapshot.head, versions(snapshot))
}

fn file(snapshot: &Snapshot) -> Vec<u8> {
    let (_, shape) = write_to(Writer::measure(), snapshot).unwrap();
    let out = Checksummed::new(Vec::new());
    let (out, _) = write_to(Writer::new(out, shape).unwrap(), snapshot).unwrap();
    out.finish().unwrap()
}

fn pair() -> impl Strategy<Value = KeyValue> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from);
    // Few revisions: several keys of one transaction.
    (bytes(8), bytes(600), 2..40_i64, 1..9_i64, any::<i64>()).prop_map(
        |(key, value, mod_revision, version, lease)| KeyValue {
            key,
            create_revision: mod_revision.min(2),
            mod_revision,
            version,
            value,
            lease,
        },
    )
}

fn named() -> impl Strategy<Value = Vec<(Bytes, Bytes)>> {
    let name = prop::collection::vec(any::<u8>(), 1..6);
    let map = prop::collection::btree_map(name, prop::collection::vec(any::<u8>(), 0..9), 0..4);
    map.prop_map(|map| {
        map.into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let leases = prop::collection::btree_map(0..i64::MAX, 2..9_000_000_000_i64, 0..20);
    let auth = (any::<bool>(), any::<u64>(), named(), named());
    (prop::collection::vec(pair(), 0..200), leases, auth, named()).prop_map(
        |(pairs, leases, (enabled, revision, users, roles), alarms)| Snapshot {
            head: Head {
                revision: 50,
                leases: leases
                    .into_iter()
                    .map(|(id, ttl_s)| Lease { id, ttl_s })
                    .collect(),
                alarms: alarms.into_iter().map(|(alarm, _)| alarm).collect(),
                auth: Auth {
                    enabled,
                    revision,
                    users,
                    roles,
                },
            },
            pairs: pairs
                .into_iter()
                .map(|pair| (pair.key.clone(), pair))
                .collect(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(snapshot in snapshot()) {
        prop_assert_eq!(read(Cursor::new(file(&snapshot)), Integrity::Checked).unwrap(), snapshot);
    }

    #[test]
    fn a_flipped_bit_is_found(snapshot in snapshot(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = file(&snapshot);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let read = read(Cursor::new(bytes), Integrity::Checked);
        prop_assert!(matches!(read, Err(ImportError::Checksum)), "{:?}", read.err());
    }
}

#[test]
fn a_database_of_something_else_is_refused() {
    let database = |bucket: &[u8], key: &[u8]| {
        let write = |writer: Writer<_>| {
            let mut bucket = writer.bucket(bucket);
            bucket.entry(key, b"value").unwrap();
            bucket.finish().unwrap().finish().unwrap()
        };
        let mut bucket = Writer::measure().bucket(bucket);
        bucket.entry(key, b"value").unwrap();
        let (_, shape) = bucket.finish().unwrap().finish().unwrap();
        let (bytes, _) = write(Writer::new(Vec::new(), shape).unwrap());
        read(Cursor::new(bytes), Integrity::Skipped)
    };
    let other = database(b"other", b"key");
    assert!(
        matches!(other, Err(ImportError::NoBucket("key"))),
        "{other:?}"
    );
    let odd = database(b"key", b"no revision");
    assert!(
        matches!(odd, Err(ImportError::Record { bucket: "key", .. })),
        "{odd:?}"
    );
    let odd = database(b"key", b"12345678_12345678");
    assert!(
        matches!(odd, Err(ImportError::Record { bucket: "key", .. })),
        "{odd:?}"
    );
}

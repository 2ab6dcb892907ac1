//! A snapshot that Debian's etcd 3.4.23 saved after 159 revisions: keys, deletions, a transaction, a
//! lease, a compaction, a user and a role.

use std::io::{Cursor, Read};

use dormouse_snapshot::{ImportError, Integrity, read};

fn snapshot() -> Vec<u8> {
    let mut bytes = Vec::new();
    let compressed = include_bytes!("../../../bbolt/tests/data/etcd-3.4.db.gz");
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

#[test]
fn the_state_at_the_last_revision_is_taken() {
    let snapshot = read(Cursor::new(snapshot()), Integrity::Checked).unwrap();
    assert_eq!(snapshot.head.revision, 159);
    assert_eq!(snapshot.pairs.len(), 155);
    let a = &snapshot.pairs[&b"a"[..]];
    assert_eq!(
        (&a.value[..], a.create_revision, a.version),
        (&b"3"[..], 2, 2)
    );
    for deleted in ["b", "k/7"] {
        assert!(
            !snapshot.pairs.contains_key(deleted.as_bytes()),
            "{deleted}"
        );
    }
    let (t1, t2) = (&snapshot.pairs[&b"t1"[..]], &snapshot.pairs[&b"t2"[..]]);
    assert_eq!(
        (t1.mod_revision, t2.mod_revision),
        (158, 158),
        "one transaction"
    );
    let [lease] = snapshot.head.leases[..] else {
        panic!("one lease: {:?}", snapshot.head.leases);
    };
    assert_eq!(
        (lease.ttl_s, lease.id),
        (600, snapshot.pairs[&b"c"[..]].lease)
    );
    let auth = &snapshot.head.auth;
    assert_eq!(
        (auth.enabled, &auth.users[0].0[..], &auth.roles[0].0[..]),
        (false, &b"u"[..], &b"r"[..])
    );
}

#[test]
fn a_changed_file_and_one_without_a_checksum_are_refused() {
    let mut bytes = snapshot();
    bytes[40_000] ^= 1;
    let changed = read(Cursor::new(bytes.clone()), Integrity::Checked);
    assert!(matches!(changed, Err(ImportError::Checksum)), "{changed:?}");
    bytes[40_000] ^= 1;
    bytes.truncate(bytes.len() - 32);
    let bare = read(Cursor::new(bytes.clone()), Integrity::Checked);
    assert!(matches!(bare, Err(ImportError::NoChecksum)), "{bare:?}");
    let unchecked = read(Cursor::new(bytes), Integrity::Skipped).unwrap();
    assert_eq!(unchecked.head.revision, 159);
}

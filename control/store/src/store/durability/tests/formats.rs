//! Data directories in each format, written by the releases that had them.

use std::{fs, io, path::PathBuf};

use super::*;

/// Synced keys in the files.
const SYNCED: &str = "/fsync/";

/// A copy of the directory in a format.
fn directory_in_format(format: u32) -> TempDir {
    let copy = directory();
    let folder = env!("CARGO_MANIFEST_DIR");
    let folder = PathBuf::from(format!("{folder}/tests/data/format-{format}"));
    for file in fs::read_dir(folder).unwrap().map(io::Result::unwrap) {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn open_synced(path: &Path) -> Result<Store, OpenError> {
    let mut policy = Policy::default();
    policy.set((SYNCED.into(), Durability::Fsync));
    let data = DataDir {
        path: path.to_owned(),
        policy,
    };
    Store::open(Limits::default(), &data)
}

/// What differs between the directories.
struct Written {
    format: u32,
    cluster: u64,
    /// The last revision that a client was answered.
    revision: Revision,
    /// The revisions of the creation and of the last put of `a`.
    a: (Revision, Revision),
}

const FORMAT_1: Written = Written {
    format: 1,
    cluster: 6_460_828_546_617_247_825,
    revision: 1_049_586,
    a: (2, 1_049_585),
};
const FORMAT_2: Written = Written {
    format: 2,
    cluster: 212_841_517_619_679_051,
    revision: 1_049_587,
    a: (3, 1_049_586),
};

/// A restored snapshot, then three runs: puts, a deletion, leases, a revocation, a transaction that also
/// wrote a key in mode `none`, a user, a compaction and kill -9 in the first; an orderly end of the
/// second; kill -9 of the third.
async fn check(store: &Store, written: &Written) {
    assert_eq!(store.header(0).cluster_id, written.cluster);
    assert!(store.revision() > written.revision);
    let found = range(store, ALL, 0).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = found.iter().map(|pair| {
        let fields = pair.fields();
        format!("{}={}", text(fields.key), text(fields.value))
    });
    let expected = [
        "/fsync/a=1",
        "/fsync/b=2",
        "/registry/leases/b=1",
        "a=4",
        "both=1",
        "c=1",
        "leased=1",
    ];
    assert_eq!(pairs.collect::<Vec<_>>(), expected);
    let a = found[3].fields();
    assert_eq!((a.create_revision, a.mod_revision), written.a);
    assert_eq!(a.version, 4);
    assert_eq!(
        range(store, (SYNCED, ""), 1_010).await,
        Err(Error::Compacted)
    );
    let (lease, _) = store.lease_time_to_live(found[6].fields().lease);
    let lease = lease.unwrap();
    assert_eq!((lease.granted_ttl_s, lease.keys.len()), (500, 1));
    store.auth().read(|state| {
        assert_eq!(state.user("u").unwrap().roles, ["r"]);
    });
}

#[tokio::test]
async fn a_directory_in_any_format_is_read_and_continued() {
    for written in [FORMAT_1, FORMAT_2] {
        let directory = directory_in_format(written.format);
        for snapshot in [false, true, true] {
            let store = open_synced(directory.path()).unwrap();
            check(&store, &written).await;
            store.compact(store.revision(), true).await.unwrap();
            if snapshot {
                store
                    .snapshot(store.shared.journal.as_ref().unwrap())
                    .unwrap();
            }
        }
    }
}

#[test]
fn damage_in_format_1_is_refused_since_nothing_states_what_was_synced() {
    let directory = directory_in_format(1);
    let path = directory.path().join("0000000000000002.wal");
    let bytes = fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        let refused = open_synced(directory.path()).unwrap_err().to_string();
        assert!(
            refused.contains("0000000000000002.wal"),
            "byte {at}: {refused}"
        );
    }
}

#[test]
fn a_file_in_a_newer_format_is_refused_with_its_name() {
    for name in ["0000000000000004.wal", "00000000000003ed.snap"] {
        let directory = directory_in_format(1);
        let path = directory.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 3;
        fs::write(&path, bytes).unwrap();
        let refused = open_synced(directory.path()).unwrap_err().to_string();
        let expected = format!("`{name}` has format 3, this release reads formats up to 2");
        assert!(refused.contains(&expected), "{refused}");
        assert!(
            refused.contains("start the release that wrote it"),
            "{refused}"
        );
    }
}

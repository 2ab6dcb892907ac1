//! The journal survives what a power cut, a reboot and a changed configuration do to it.

use std::fs;

use super::*;
use crate::journal::scan;
use crate::lease::NetnsId;

const BOOT: BootId = BootId([7; 16]);

fn opening(prefix: &str, boot: BootId) -> Opening {
    Opening {
        prefix: prefix.parse().unwrap(),
        rest: Duration::from_mins(1),
        boot,
    }
}

fn open(path: &Path) -> Leases {
    Leases::open(path, opening("2001:db8::/96", BOOT)).unwrap()
}

fn request(container: &str) -> Request {
    let key = LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    };
    Request {
        key,
        netns: NetnsId {
            dev: 4,
            ino: 4_026_531_840,
        },
        address: None,
    }
}

fn now(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn leases_are_there_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut leases = open(&path);
    let kept = leases.reserve(&request("kept"), now(1)).unwrap();
    leases.confirm(kept.suffix).unwrap();
    let gone = leases.reserve(&request("gone"), now(2)).unwrap();
    leases.release(gone.suffix).unwrap();
    leases.free(gone.suffix, now(3)).unwrap();
    let before = leases.allocator().clone();
    drop(leases);
    let leases = open(&path);
    assert_eq!(*leases.allocator(), before);
    assert_eq!(leases.lease(&kept.key).unwrap().state, State::Live);
    assert_eq!(leases.lease(&kept.key).unwrap().netns, kept.netns);
}

#[test]
fn a_second_process_cannot_open_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let _first = open(&path);
    let refused = Leases::open(&path, opening("2001:db8::/96", BOOT)).unwrap_err();
    assert!(matches!(
        refused,
        LeasesError::Journal {
            operation: "open",
            ..
        }
    ));
}

#[test]
fn another_boot_frees_every_lease_but_goes_on_drawing_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut leases = open(&path);
    let old = leases.reserve(&request("old"), now(1)).unwrap();
    drop(leases);
    let mut leases = Leases::open(&path, opening("2001:db8::/96", BootId([8; 16]))).unwrap();
    assert_eq!(leases.allocator().leases().count(), 0);
    let new = leases.reserve(&request("new"), now(1)).unwrap();
    assert_eq!(new.suffix.0, old.suffix.0 + 1);
}

#[test]
fn another_prefix_is_refused_while_leases_live_and_taken_when_none_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut leases = open(&path);
    let lease = leases.reserve(&request("a"), now(1)).unwrap();
    drop(leases);
    let refused = Leases::open(&path, opening("2001:db9::/96", BOOT))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("1 leases of 2001:db8::/96"), "{refused}");
    let mut leases = open(&path);
    leases.free(lease.suffix, now(2)).unwrap();
    drop(leases);
    Leases::open(&path, opening("2001:db9::/96", BOOT)).unwrap();
}

/// The journal's records after a life with every kind of change.
fn eventful_journal(path: &Path) -> Vec<u8> {
    let mut leases = open(path);
    for i in 0..6u64 {
        let lease = leases.reserve(&request(&format!("c{i}")), now(i)).unwrap();
        leases.confirm(lease.suffix).unwrap();
        if i % 2 == 0 {
            leases.release(lease.suffix).unwrap();
            leases.free(lease.suffix, now(i + 1)).unwrap();
        }
    }
    drop(leases);
    fs::read(path).unwrap()
}

#[test]
fn a_journal_cut_at_any_byte_recovers_what_was_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let bytes = eventful_journal(&path);
    let (records, whole) = scan(&bytes);
    assert_eq!(whole, bytes.len());
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let recovered = Journal::open(&path).unwrap();
        let count = recovered.records.len();
        assert_eq!(recovered.records, records[..count], "cut at {cut}");
        assert!(count < records.len());
        assert!(scan(&bytes[..cut]).1 <= cut && fs::metadata(&path).unwrap().len() <= cut as u64);
        drop(recovered);
        drop(open(&path));
    }
}

#[test]
fn a_flipped_bit_ends_the_journal_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let bytes = eventful_journal(&path);
    let (records, _) = scan(&bytes);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (read, _) = scan(&damaged);
        assert_eq!(read, records[..read.len()]);
        assert!(read.len() < records.len());
    }
}

#[test]
fn a_long_life_does_not_make_a_long_journal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let mut leases = open(&path);
    for i in 0..3_000u64 {
        let lease = leases.reserve(&request("again"), now(i)).unwrap();
        leases.free(lease.suffix, now(i)).unwrap();
    }
    assert!(leases.journal.length() <= COMPACT_LEN_MIN + 256);
    let before = leases.allocator().clone();
    drop(leases);
    assert_eq!(*open(&path).allocator(), before);
}

//! The leases after a restart, a reboot and a changed configuration.

use std::fs;
use std::path::Path;

use super::*;
use crate::allocator::Ipv4Wish;
use crate::journal::scan;
use crate::lease::NetnsId;
use crate::order::{Order, Secret};

mod damage;
mod format;
mod threads;

const BOOT: BootId = BootId([7; 16]);

fn opening(prefix: &str, boot: BootId) -> Opening {
    Opening::new(prefix.parse().unwrap(), boot)
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
    let netns = NetnsId {
        dev: 4,
        ino: 4_026_531_840,
    };
    Request::new(key, netns)
}

/// The state that a restart must preserve.
fn held(leases: &Leases) -> Vec<Record> {
    sorted(leases.lock().allocator.snapshot())
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| format!("{record:?}"));
    records
}

/// A folder in memory where possible: these tests do not depend on the disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn now(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn leases_survive_a_restart() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let kept = leases.reserve(&request("kept"), now(1)).unwrap();
    leases.confirm(kept.suffix).unwrap();
    let gone = leases.reserve(&request("gone"), now(2)).unwrap();
    leases.release(gone.suffix).unwrap();
    leases.free(gone.suffix, now(3)).unwrap();
    let before = held(&leases);
    drop(leases);
    let leases = open(&path);
    assert_eq!(held(&leases), before);
    assert_eq!(leases.lease(&kept.key).unwrap().state, State::Live);
    assert_eq!(leases.lease(&kept.key).unwrap().netns, kept.netns);
}

#[test]
fn a_journal_that_cannot_be_compacted_stays_in_use() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let lease = leases.reserve(&request("a"), now(1)).unwrap();
    leases.confirm(lease.suffix).unwrap();
    let before = held(&leases);
    drop(leases);
    // As on a full disk, the replacement cannot be made.
    fs::create_dir(path.with_extension("new")).unwrap();
    let leases = open(&path);
    assert_eq!(leases.writes().compactions_failed, 1);
    assert_eq!(held(&leases), before);
    let second = leases.reserve(&request("b"), now(2)).unwrap();
    leases.confirm(second.suffix).unwrap();
    let both = held(&leases);
    drop(leases);
    assert_eq!(held(&open(&path)), both);
    // Its leases would be void.
    let rebooted = opening("2001:db8::/96", BootId([8; 16]));
    assert!(Leases::open(&path, rebooted).is_err());
}

#[test]
fn a_second_process_cannot_open_the_journal() {
    let folder = folder();
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
fn a_reboot_frees_every_lease_and_keeps_the_cursor() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let old = leases.reserve(&request("old"), now(1)).unwrap();
    drop(leases);
    let leases = Leases::open(&path, opening("2001:db8::/96", BootId([8; 16]))).unwrap();
    assert_eq!(leases.leases().len(), 0);
    let new = leases.reserve(&request("new"), now(1)).unwrap();
    assert_eq!(new.suffix.0, old.suffix.0 + 1);
}

#[test]
fn another_prefix_is_refused_while_there_are_leases() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let lease = leases.reserve(&request("a"), now(1)).unwrap();
    drop(leases);
    let refused = Leases::open(&path, opening("2001:db9::/96", BOOT))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("1 leases of 2001:db8::/96"), "{refused}");
    let leases = open(&path);
    leases.free(lease.suffix, now(2)).unwrap();
    drop(leases);
    Leases::open(&path, opening("2001:db9::/96", BOOT)).unwrap();
}

#[test]
fn the_journal_stays_short_after_many_changes() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    for i in 0..3_000u64 {
        let lease = leases.reserve(&request("again"), now(i)).unwrap();
        leases.free(lease.suffix, now(i)).unwrap();
    }
    assert!(leases.lock().length <= compaction::LENGTH_MIN + 256);
    let before = held(&leases);
    drop(leases);
    assert_eq!(held(&open(&path)), before);
}

#[test]
fn the_cursor_of_a_cohort_survives_a_reboot_and_its_quarantine_a_crash() {
    let folder = folder();
    let path = folder.path().join("leases");
    let of_cohort = |name: &str| Request {
        cohort: Some(5000),
        ..request(name)
    };
    let leases = open(&path);
    let first = leases.reserve(&of_cohort("a"), now(1)).unwrap();
    leases.free(first.suffix, now(1)).unwrap();
    drop(leases);
    let leases = open(&path);
    let second = leases.reserve(&of_cohort("a"), now(2)).unwrap();
    assert_eq!(second.suffix.0, first.suffix.0 + 1);
    drop(leases);
    let leases = Leases::open(&path, opening("2001:db8::/96", BootId([8; 16]))).unwrap();
    let third = leases.reserve(&of_cohort("a"), now(0)).unwrap();
    assert_eq!(third.suffix.0, second.suffix.0 + 1);
}

#[test]
fn another_secret_or_ipv4_range_keeps_leases_and_quarantined_addresses() {
    let folder = folder();
    let path = folder.path().join("leases");
    let with = |secret, range: &str| Opening {
        secret: Some(Secret([secret; 16])),
        range4: Some(range.parse().unwrap()),
        ..opening("2001:db8::/96", BOOT)
    };
    let dual = |name: &str| Request {
        ipv4: Ipv4Wish::Any,
        ..request(name)
    };
    let leases = Leases::open(&path, with(1, "10.0.0.0/24")).unwrap();
    let kept = leases.reserve(&dual("kept"), now(1)).unwrap();
    let gone = leases.reserve(&dual("gone"), now(1)).unwrap();
    leases.free(gone.suffix, now(1)).unwrap();
    drop(leases);
    let leases = Leases::open(&path, with(2, "10.0.1.0/24")).unwrap();
    assert_eq!(leases.lease(&kept.key), Some(kept));
    let new = leases.reserve(&dual("new"), now(2)).unwrap();
    assert_eq!(new.ipv4, Some("10.0.1.2".parse().unwrap()));
    let again = Request {
        ipv4: Ipv4Wish::Exactly(gone.ipv4.unwrap()),
        ..request("again")
    };
    drop(leases);
    let leases = Leases::open(&path, with(2, "10.0.0.0/24")).unwrap();
    let refused = leases.reserve(&again, now(3)).unwrap_err().to_string();
    assert!(
        refused
            .contains("10.0.0.3 was released recently and is in quarantine for another 58000 ms"),
        "{refused}"
    );
}

#[test]
fn an_address_in_use_is_adopted_even_in_quarantine_but_not_from_another_lease() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let lost = leases.reserve(&request("lost"), now(1)).unwrap();
    leases.free(lost.suffix, now(1)).unwrap();
    leases.adopt(&lost).unwrap();
    assert_eq!(leases.lease(&lost.key).unwrap().state, State::Live);
    let thief = Lease {
        key: request("thief").key,
        ..Lease::clone(&lost)
    };
    let refused = leases.adopt(&thief).unwrap_err().to_string();
    assert!(refused.contains("held by pods/lost/eth0"), "{refused}");
}

//! What the keyspace holds: per key, per revision, and after everything is deleted.

use super::super::*;

const KEYS: u32 = 20_000;
const VALUE: [u8; 310] = [b'v'; 310];

/// Keys of 40 bytes, as Kubernetes' are.
fn key(n: u32) -> String {
    format!("/registry/leases/kube-node-lease/{n:07}")
}

fn put_all(keyspace: &mut Keyspace) {
    put_in_steps(keyspace, 1);
}

/// Puts all keys; the step has no common divisor with their number.
fn put_in_steps(keyspace: &mut Keyspace, step: u32) {
    for n in 0..KEYS {
        let mut write = keyspace.write();
        write.put(Put {
            key: key(n * step % KEYS).as_bytes(),
            value: &VALUE,
            lease: 0,
        });
        write.commit();
    }
}

fn per_key(bytes: u64) -> u64 {
    bytes / u64::from(KEYS)
}

#[test]
fn a_key_costs_less_than_200_bytes_and_a_further_revision_less_than_96_over_its_payload() {
    let mut keyspace = Keyspace::default();
    put_all(&mut keyspace);
    let first = per_key(keyspace.held_bytes());
    let payload = 350;
    assert!((payload..payload + 200).contains(&first), "{first}");
    put_all(&mut keyspace);
    let second = per_key(keyspace.held_bytes()) - first;
    assert!((310..310 + 96).contains(&second), "{second}");
}

#[test]
fn the_memory_of_deleted_and_compacted_keys_is_given_back() {
    let mut keyspace = Keyspace::default();
    let empty = keyspace.held_bytes();
    put_all(&mut keyspace);
    put_all(&mut keyspace);
    let mut write = keyspace.write();
    write.delete(&KeyRange::From(b"/".as_slice().into()));
    write.commit();
    assert_eq!(keyspace.keys_live(), 0);
    let current = keyspace.current();
    keyspace.compact(current, current).unwrap();
    while !keyspace.reclaim(None, 1_000) {}
    // Only the events that stay readable for synced watchers are left.
    let tail = keyspace.held_bytes() - empty;
    assert!(tail < 20 << 20, "{tail}");
    assert!(keyspace.records.len() <= 8_192);
    while !keyspace.drop_tail(1_000) {}
    assert_eq!(
        keyspace.records.len(),
        0,
        "a part of a revision is of no use to a watcher"
    );
    for n in 0..10_000 {
        let mut write = keyspace.write();
        write.put(Put {
            key: key(n % 3).as_bytes(),
            value: b"",
            lease: 0,
        });
        write.commit();
    }
    let current = keyspace.current();
    keyspace.compact(current, current).unwrap();
    while !keyspace.reclaim(None, 1_000) {}
    assert_eq!(keyspace.records.len(), 3);
    let left = keyspace.held_bytes() - empty;
    assert!(left < 4 << 20, "{left}");
}

#[test]
fn the_memory_of_keys_that_were_put_in_another_order_is_given_back() {
    let mut keyspace = Keyspace::default();
    let empty = keyspace.held_bytes();
    for step in [7_919, 1, 104_729] {
        put_in_steps(&mut keyspace, step);
    }
    let mut write = keyspace.write();
    let deleted = write.delete(&KeyRange::From(b"/".as_slice().into()));
    assert_eq!(deleted, u64::from(KEYS));
    write.commit();
    let current = keyspace.current();
    keyspace.compact(current, current).unwrap();
    while !keyspace.reclaim(None, 1_000) {}
    while !keyspace.drop_tail(1_000) {}
    assert_eq!(keyspace.records.len(), 0);
    // One region, of the log, has a chunk in use.
    let left = keyspace.held_bytes() - empty;
    assert!(left <= 2 << 20, "{left}");
}

#[test]
fn used_bytes_fall_with_each_version_that_is_freed() {
    let mut keyspace = Keyspace::default();
    put_all(&mut keyspace);
    let one = keyspace.used_bytes();
    put_all(&mut keyspace);
    let two = keyspace.used_bytes();
    let current = keyspace.current();
    keyspace.compact(current, current).unwrap();
    while !keyspace.reclaim(None, 1_000) {}
    let kept = u64::from(KEYS) - 8_192;
    assert!(two - keyspace.used_bytes() >= kept * VALUE.len() as u64);
    assert!(keyspace.used_bytes() >= one);
}

#[test]
fn the_events_of_the_compacted_revision_stay_when_the_tail_is_dropped() {
    let mut keyspace = Keyspace::default();
    for value in [b"1", b"2", b"3"] {
        let mut write = keyspace.write();
        write.put(Put {
            key: b"a",
            value,
            lease: 0,
        });
        write.commit();
    }
    let current = keyspace.current();
    keyspace.compact(current - 1, current).unwrap();
    while !keyspace.reclaim(None, 1_000) {}
    while !keyspace.drop_tail(1_000) {}
    assert_eq!(keyspace.watchable(), current - 1);
    assert_eq!(keyspace.events_above(current - 2).count(), 2);
}

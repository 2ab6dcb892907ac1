//! A keyspace that is restored from its events, deletions and compactions.

use proptest::prelude::*;

use super::*;

/// Restores what a keyspace wrote at a revision: a deletion by its range, other changes by their events.
fn restore(restoring: &mut Restoring, keyspace: &Keyspace, changes: &[Change]) {
    let before = restoring.current();
    if let [Change::Delete(from, to)] = *changes {
        if keyspace.current() > before {
            restoring.deletion(&KeyRange::Span(key(from), key(to)), keyspace.current());
        }
        return;
    }
    let events = keyspace.events_above(before).map(|event| Fields {
        key: event.key(),
        ..event.fields()
    });
    let mut events: Vec<_> = events.map(|fields| restoring.recorded(fields)).collect();
    restoring.find(&mut events);
    for event in &events {
        restoring.event(event);
    }
    restoring.revision(keyspace.current());
}

proptest! {
    #[test]
    fn it_reads_the_same_at_every_revision(steps in prop::collection::vec(step(), 0..60)) {
        let (mut keyspace, mut restoring) = (Keyspace::default(), Restoring::new(Keyspace::default()));
        for step in &steps {
            match step {
                Step::Write(changes) => {
                    write(&mut keyspace, changes);
                    restore(&mut restoring, &keyspace, changes);
                }
                Step::Compact(share) => {
                    let revision = keyspace.current() * Revision::from(*share) / 255;
                    let result = keyspace.compact(revision, keyspace.current());
                    prop_assert_eq!(restoring.compact(revision), result);
                    keyspace.reclaim(None, usize::MAX);
                }
            }
        }
        let restored = restoring.finish();
        prop_assert_eq!(restored.current(), keyspace.current());
        prop_assert_eq!(restored.keys_live(), keyspace.keys_live());
        prop_assert_eq!(restored.used_bytes(), keyspace.used_bytes());
        for revision in 1..=keyspace.current() {
            prop_assert_eq!(read(&restored, revision), read(&keyspace, revision));
        }
    }
}

#[test]
fn many_keys_are_found_counted_and_listed_in_order_and_take_no_more_memory_than_written_ones() {
    const KEYS: u32 = 50_000;
    let (mut keyspace, mut restoring) = (Keyspace::default(), Restoring::new(Keyspace::default()));
    let key = |n: u32| format!("/registry/pods/{}", n.wrapping_mul(7_919) % KEYS);
    for n in 0..KEYS {
        let mut write = keyspace.write();
        write.put(Put {
            key: key(n).as_bytes(),
            value: &[b'v'; 310],
            lease: 0,
        });
        write.commit();
    }
    let events = keyspace.events_above(1).map(|event| Fields {
        key: event.key(),
        ..event.fields()
    });
    let mut events: Vec<_> = events.map(|fields| restoring.recorded(fields)).collect();
    for events in events.chunks_mut(100) {
        restoring.find(events);
        for event in &*events {
            restoring.event(event);
        }
    }
    let restored = restoring.finish();
    assert!(restored.held_bytes() <= keyspace.held_bytes());
    let keys = |keyspace: &Keyspace| read(keyspace, 0).unwrap();
    assert_eq!(keys(&restored), keys(&keyspace));
    let last = key(KEYS - 1);
    assert!(restored.now().get(last.as_bytes()).is_some());
}

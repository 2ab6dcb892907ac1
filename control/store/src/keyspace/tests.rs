//! The keyspace compared with a model that holds a whole map for each revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::proto::etcdserverpb::RangeRequest;

const ALL: PageLimits = PageLimits {
    events: usize::MAX,
    bytes: u64::MAX,
};

fn everything() -> KeyRange {
    KeyRange::From(Bytes::from_static(b"\0"))
}

fn key(n: u8) -> Bytes {
    Bytes::from(vec![b'a' + n])
}

#[derive(Clone, Debug)]
enum Change {
    Put(u8, u8),
    Delete(u8, u8),
}

#[derive(Clone, Debug)]
enum Step {
    /// The changes of one revision.
    Write(Vec<Change>),
    /// Compacts at this share (of 255) of the current revision.
    Compact(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..8_u8, any::<u8>()).prop_map(|(key, value)| Change::Put(key, value));
    let delete = (0..8_u8, 0..9_u8).prop_map(|(from, to)| Change::Delete(from, to));
    let change = prop_oneof![3 => put, 1 => delete];
    let write = prop::collection::vec(change, 1..4).prop_map(Step::Write);
    prop_oneof![9 => write, 1 => any::<u8>().prop_map(Step::Compact)]
}

type Snapshot = BTreeMap<Bytes, KeyValue>;

/// All keys after each revision; the first is revision 1.
struct Model {
    snapshots: Vec<Snapshot>,
    compacted: Revision,
}

impl Model {
    fn current(&self) -> Revision {
        Revision::try_from(self.snapshots.len()).unwrap()
    }

    fn at(&self, revision: Revision) -> &Snapshot {
        &self.snapshots[usize::try_from(revision).unwrap() - 1]
    }

    fn write(&mut self, changes: &[Change]) {
        let revision = self.current() + 1;
        let mut now = self.at(revision - 1).clone();
        let mut wrote = false;
        for change in changes {
            match *change {
                Change::Put(n, value) => {
                    wrote = true;
                    let before = now.get(&key(n));
                    let kv = KeyValue {
                        key: key(n),
                        create_revision: before.map_or(revision, |kv| kv.create_revision),
                        mod_revision: revision,
                        version: before.map_or(1, |kv| kv.version + 1),
                        value: Bytes::from(vec![value]),
                        lease: 0,
                    };
                    now.insert(key(n), kv);
                }
                Change::Delete(from, to) => {
                    let before = now.len();
                    now.retain(|k, _| !(key(from)..key(to)).contains(k));
                    wrote |= now.len() != before;
                }
            }
        }
        if wrote {
            self.snapshots.push(now);
        }
    }
}

fn write(keyspace: &mut Keyspace, changes: &[Change]) {
    let mut write = keyspace.write();
    for change in changes {
        match *change {
            Change::Put(n, value) => drop(write.put(&key(n), &Bytes::from(vec![value]), 0)),
            Change::Delete(from, to) => drop(write.delete(&KeyRange::Span(key(from), key(to)))),
        }
    }
    write.commit();
}

fn read(keyspace: &Keyspace, revision: Revision) -> Result<Vec<KeyValue>, Error> {
    let zero = Bytes::from_static(b"\0");
    let request = RangeRequest {
        key: zero.clone(),
        range_end: zero,
        revision,
        ..Default::default()
    };
    let found = keyspace.range(&request)?;
    assert_eq!(usize::try_from(found.count).unwrap(), found.kvs.len());
    Ok(found.kvs.iter().map(|kv| KeyValue::clone(kv)).collect())
}

fn run(steps: &[Step]) -> (Keyspace, Model) {
    let mut keyspace = Keyspace::default();
    let mut model = Model {
        snapshots: vec![Snapshot::new()],
        compacted: -1,
    };
    for step in steps {
        match step {
            Step::Write(changes) => {
                write(&mut keyspace, changes);
                model.write(changes);
            }
            Step::Compact(share) => {
                let revision = model.current() * Revision::from(*share) / 255;
                let refused = revision <= model.compacted;
                assert_eq!(keyspace.compact(revision).is_err(), refused);
                model.compacted = model.compacted.max(revision);
            }
        }
        assert_eq!(keyspace.current(), model.current());
    }
    (keyspace, model)
}

proptest! {
    #[test]
    fn every_revision_reads_the_same_as_in_the_model(steps in prop::collection::vec(step(), 0..60)) {
        let (keyspace, model) = run(&steps);
        for revision in 1..=model.current() {
            let got = read(&keyspace, revision);
            if revision < model.compacted {
                prop_assert_eq!(got, Err(Error::Compacted));
            } else {
                let expected: Vec<_> = model.at(revision).values().cloned().collect();
                prop_assert_eq!(got, Ok(expected));
            }
        }
        prop_assert_eq!(read(&keyspace, model.current() + 1), Err(Error::FutureRevision));
        let live = model.at(model.current()).len() as u64;
        prop_assert_eq!(keyspace.keys_live(), live);
    }

    #[test]
    fn the_events_after_a_revision_turn_its_state_into_the_current_one(
        steps in prop::collection::vec(step(), 1..60),
        page_events in 1..5_usize,
    ) {
        let (keyspace, model) = run(&steps);
        for start in model.compacted.max(1)..=model.current() {
            let mut state = model.at(start).clone();
            let mut from = start + 1;
            while from <= model.current() {
                let limits = PageLimits { events: page_events, ..ALL };
                let page = keyspace.events(&everything(), from, false, limits).unwrap();
                prop_assert!(page.next > from);
                for event in page.events {
                    prop_assert!((from..page.next).contains(&event.revision));
                    let before = state.remove(&event.kv.key);
                    prop_assert_eq!(before.as_ref(), event.prev.as_deref());
                    if !event.deleted {
                        state.insert(event.kv.key.clone(), KeyValue::clone(&event.kv));
                    }
                }
                from = page.next;
                prop_assert_eq!(&state, model.at(from - 1));
            }
        }
    }

    #[test]
    fn compaction_at_the_current_revision_leaves_one_version_of_each_key(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut keyspace, model) = run(&steps);
        let _refused_if_already_compacted = keyspace.compact(model.current());
        let now: u64 = model.at(model.current()).values().map(weight).sum();
        prop_assert_eq!(keyspace.bytes(), now);
        prop_assert_eq!(keyspace.keys.len(), model.at(model.current()).len());
    }
}

proptest! {
    #[test]
    fn hashes_are_those_of_the_same_history_compacted_at_once(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let (keyspace, model) = run(&steps);
        let writes: Vec<Step> = steps.into_iter().filter(|s| matches!(s, Step::Write(_))).collect();
        let (mut other, _) = run(&writes);
        let compacted = model.compacted;
        if compacted >= 0 {
            let before = other.hash(compacted);
            other.compact(compacted).unwrap();
            prop_assert!(compacted == 0 || other.hash(compacted) == before);
        }
        for revision in compacted.max(0) + 1..=model.current() {
            prop_assert_eq!(keyspace.hash(revision).unwrap(), other.hash(revision).unwrap());
        }
        let current = keyspace.hash(0).unwrap();
        prop_assert_eq!((current.compacted, current.revision), (compacted, model.current()));
        let future = keyspace.hash(model.current() + 1);
        prop_assert_eq!(future.unwrap_err(), Error::FutureRevision);
    }
}

#[test]
fn a_hash_differs_by_value_key_revision_and_deletion() {
    let histories: [&[&[Change]]; 5] = [
        &[&[Change::Put(0, 1)], &[Change::Put(1, 1)]],
        &[&[Change::Put(0, 1)], &[Change::Put(1, 2)]],
        &[&[Change::Put(0, 1)], &[Change::Put(2, 1)]],
        &[&[Change::Put(1, 1)], &[Change::Put(0, 1)]],
        &[&[Change::Put(0, 1)], &[Change::Delete(0, 1)]],
    ];
    let hashes = histories.map(|history| {
        let mut keyspace = Keyspace::default();
        for changes in history {
            write(&mut keyspace, changes);
        }
        keyspace.hash(0).unwrap().hash
    });
    let different: std::collections::BTreeSet<u32> = hashes.into_iter().collect();
    assert_eq!(different.len(), hashes.len());
}

#[test]
fn the_hashes_of_the_last_compactions_are_kept() {
    let mut keyspace = Keyspace::default();
    for value in 0..20 {
        write(&mut keyspace, &[Change::Put(0, value)]);
        keyspace.compact(keyspace.current()).unwrap();
    }
    let last = keyspace.hash(21).unwrap();
    assert_eq!((last.compacted, last.revision), (20, 21));
    assert_eq!(keyspace.hash(12).unwrap().compacted, 11);
    assert_eq!(keyspace.hash(11).unwrap_err(), Error::Compacted);
}

#[test]
fn a_read_of_compacted_events_is_refused_unless_the_watcher_is_synced() {
    let mut keyspace = Keyspace::default();
    for value in 0..10 {
        write(&mut keyspace, &[Change::Put(0, value)]);
    }
    keyspace.compact(8).unwrap();
    let refused = keyspace.events(&everything(), 7, false, ALL);
    assert_eq!(refused.unwrap_err(), Error::Compacted);
    assert_eq!(
        keyspace
            .events(&everything(), 8, false, ALL)
            .unwrap()
            .events
            .len(),
        4
    );
    assert_eq!(
        keyspace
            .events(&everything(), 7, true, ALL)
            .unwrap()
            .events
            .len(),
        5
    );
}

#[test]
fn the_compacted_events_that_stay_readable_are_bounded() {
    let mut keyspace = Keyspace::default();
    for _ in 0..20_000 {
        write(&mut keyspace, &[Change::Put(0, 0)]);
    }
    keyspace.compact(keyspace.current()).unwrap();
    let late = keyspace.events(&everything(), 1_000, true, ALL);
    assert_eq!(late.unwrap_err(), Error::Compacted);
    let nearly = keyspace.events(&everything(), keyspace.current() - 8_000, true, ALL);
    assert_eq!(nearly.unwrap().events.len(), 8_001);
}

//! The keyspace compared with a model that holds a whole map for each revision.

mod memory;
mod model;
mod restored;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{proto::etcdserverpb::RangeRequest, wire::Fields};
use model::{Change, Model, Pair, Snapshot, Step, everything, key, step};

const ALL: PageLimits = PageLimits {
    events: usize::MAX,
    bytes: u64::MAX,
};

fn write(keyspace: &mut Keyspace, changes: &[Change]) {
    let mut write = keyspace.write();
    for change in changes {
        match *change {
            Change::Put(n, value) => write.put(Put {
                key: &key(n),
                value: &[value],
                lease: value.into(),
            }),
            Change::Delete(from, to) => {
                write.delete(&KeyRange::Span(key(from), key(to)));
            }
        }
    }
    write.commit();
}

/// Runs the steps; after each, the memory of some compacted events is freed.
fn run(steps: &[Step]) -> (Keyspace, Model) {
    let (mut keyspace, mut model) = (Keyspace::default(), Model::default());
    for step in steps {
        match step {
            Step::Write(changes) => {
                write(&mut keyspace, changes);
                model.write(changes);
            }
            Step::Compact(share) => {
                let revision = model.current() * Revision::from(*share) / 255;
                let refused = revision <= model.compacted;
                let result = keyspace.compact(revision, keyspace.current());
                assert_eq!(result.is_err(), refused);
                model.compacted = model.compacted.max(revision);
            }
        }
        keyspace.reclaim(None, 3);
        assert_eq!(keyspace.current(), model.current());
    }
    (keyspace, model)
}

fn request(range: &KeyRange, revision: Revision) -> RangeRequest {
    let (key, range_end) = match range {
        KeyRange::One(key) => (key.clone(), Bytes::new()),
        KeyRange::Span(from, end) => (from.clone(), end.clone()),
        KeyRange::From(from) => (from.clone(), Bytes::from_static(b"\0")),
    };
    RangeRequest {
        key,
        range_end,
        revision,
        ..Default::default()
    }
}

fn snapshot(found: &RangeResult) -> Snapshot {
    let pairs = found.pairs.messages().map(|kv| {
        let fields = kv.fields();
        (Bytes::copy_from_slice(fields.key), Pair::from(fields))
    });
    pairs.collect()
}

fn read(keyspace: &Keyspace, revision: Revision) -> Result<Snapshot, Error> {
    let found = keyspace.now().range(&request(&everything(), revision))?;
    assert_eq!(usize::try_from(found.count).unwrap(), found.pairs.len());
    Ok(snapshot(&found))
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
                prop_assert_eq!(got.as_ref(), Ok(model.at(revision)));
            }
        }
        prop_assert_eq!(read(&keyspace, model.current() + 1), Err(Error::FutureRevision));
        let live = model.at(model.current()).len() as u64;
        prop_assert_eq!(keyspace.keys_live(), live);
    }

    #[test]
    fn limits_counts_and_keys_agree_with_the_model_at_every_revision(
        steps in prop::collection::vec(step(), 1..60),
        (from, to) in (0..9_u8, 0..9_u8),
        limit in 1..5_usize,
    ) {
        let (keyspace, model) = run(&steps);
        let range = KeyRange::Span(key(from), key(to));
        for revision in model.compacted.max(1)..=model.current() {
            let wanted = model.at(revision).iter().filter(|(key, _)| range.contains(key));
            let wanted: Snapshot = wanted.map(|(key, pair)| (key.clone(), pair.clone())).collect();
            let mut limited = request(&range, revision);
            limited.limit = i64::try_from(limit).unwrap();
            let found = keyspace.now().range(&limited).unwrap();
            prop_assert_eq!(found.count, i64::try_from(wanted.len()).unwrap());
            prop_assert_eq!(found.more, wanted.len() > limit);
            prop_assert!(snapshot(&found).iter().eq(wanted.iter().take(limit)));
            let counted = RangeRequest { count_only: true, ..limited };
            let found = keyspace.now().range(&counted).unwrap();
            prop_assert_eq!(found.count, i64::try_from(wanted.len()).unwrap());
            prop_assert!(found.pairs.is_empty() && !found.more);
            for n in 0..8 {
                let got = keyspace.at(revision).get(&key(n)).map(|found| Pair::from(found.fields()));
                prop_assert_eq!(got.as_ref(), model.at(revision).get(&key(n)));
            }
        }
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
                let page = keyspace.events(EventQuery {
                    range: &everything(),
                    from,
                    upto: model.current(),
                    synced: false,
                    prev_above: 0,
                    limits: PageLimits { events: page_events, ..ALL },
                }).unwrap();
                prop_assert!(page.next > from);
                for event in page.events {
                    let kv = event.kv();
                    prop_assert!((from..page.next).contains(&kv.mod_revision));
                    // The key before the revision, whatever else the revision did to it.
                    let before = model.at(kv.mod_revision - 1).get(kv.key);
                    let create = !event.is_delete() && kv.version == 1;
                    let prev = event.prev_kv().map(Pair::from);
                    prop_assert_eq!(prev.as_ref(), before.filter(|_| !create));
                    state.remove(kv.key);
                    if !event.is_delete() {
                        state.insert(Bytes::copy_from_slice(kv.key), kv.into());
                    }
                }
                from = page.next;
                prop_assert_eq!(&state, model.at(from - 1));
            }
        }
    }

    #[test]
    fn a_read_in_slices_sees_its_revision_while_others_write_and_compact(
        keys in 1..2_000_u32,
        limit in 0..1_500_i64,
        writes in 1..4_u32,
    ) {
        let mut keyspace = Keyspace::default();
        let put = |keyspace: &mut Keyspace, n: u32, value: u8| {
            let mut write = keyspace.write();
            write.put(Put { key: &n.to_be_bytes(), value: &[value], lease: 0 });
            write.commit();
        };
        (0..keys).for_each(|n| put(&mut keyspace, n, 0));
        let pinned = keyspace.current();
        let request = RangeRequest { limit, ..request(&KeyRange::From(Bytes::from_static(b"\0")), 0) };
        let mut read = RangeRead::new(keyspace.now(), &request).unwrap();
        while !read.slice(&keyspace) {
            for n in 0..writes {
                put(&mut keyspace, n * 7 % keys, 1);
                put(&mut keyspace, keys + n, 1);
            }
            let mut write = keyspace.write();
            write.delete(&KeyRange::One(Bytes::copy_from_slice(&(keys - 1).to_be_bytes())));
            write.commit();
            keyspace.compact(keyspace.current(), keyspace.current()).ok();
            keyspace.reclaim(Some(pinned), usize::MAX);
        }
        let found = read.finish();
        let wanted = if limit == 0 { keys } else { keys.min(u32::try_from(limit).unwrap()) };
        prop_assert_eq!(found.count, i64::from(keys));
        prop_assert_eq!(found.pairs.len(), wanted as usize);
        for (n, kv) in (0_u32..).zip(found.pairs.messages()) {
            prop_assert_eq!(kv.fields().key, n.to_be_bytes());
            prop_assert_eq!(kv.fields().value, [0]);
        }
    }
}

fn hash(keyspace: &Keyspace, revision: Revision) -> Result<KeyspaceHash, Error> {
    let mut read = HashRead::new(keyspace.now(), revision);
    loop {
        if let Some(hash) = read.slice(keyspace.now()) {
            return hash;
        }
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
            let before = hash(&other, compacted);
            other.compact(compacted, other.current()).unwrap();
            prop_assert!(compacted == 0 || hash(&other, compacted) == before);
            other.reclaim(None, usize::MAX);
            prop_assert!(compacted == 0 || hash(&other, compacted) == before);
        }
        for revision in compacted.max(0) + 1..=model.current() {
            prop_assert_eq!(hash(&keyspace, revision).unwrap(), hash(&other, revision).unwrap());
        }
        let current = hash(&keyspace, 0).unwrap();
        prop_assert_eq!((current.compacted, current.revision), (compacted, model.current()));
        let future = hash(&keyspace, model.current() + 1);
        prop_assert_eq!(future.unwrap_err(), Error::FutureRevision);
    }
}

#[test]
fn a_hash_in_slices_is_that_of_its_start_while_others_write_and_compact() {
    let mut keyspace = Keyspace::default();
    for n in 0..20_000_u32 {
        write(
            &mut keyspace,
            &[Change::Put(n.to_le_bytes()[0] % 8, n.to_le_bytes()[1])],
        );
    }
    keyspace.compact(15_000, keyspace.current()).unwrap();
    let wanted = hash(&keyspace, 0).unwrap();
    let started = keyspace.current();
    let mut read = HashRead::new(keyspace.now(), 0);
    let pinned = read.pinned(&keyspace);
    let got = loop {
        if let Some(got) = read.slice(keyspace.at(started)) {
            break got.unwrap();
        }
        write(&mut keyspace, &[Change::Delete(0, 9)]);
        write(&mut keyspace, &[Change::Put(0, 0)]);
        keyspace
            .compact(keyspace.current(), keyspace.current())
            .unwrap();
        keyspace.reclaim(Some(pinned), usize::MAX);
    };
    assert_eq!(got, wanted);
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
        hash(&keyspace, 0).unwrap().hash
    });
    let different: std::collections::BTreeSet<u32> = hashes.into_iter().collect();
    assert_eq!(different.len(), hashes.len());
}

#[test]
fn the_hashes_of_the_last_compactions_are_kept() {
    let mut keyspace = Keyspace::default();
    for value in 0..20 {
        write(&mut keyspace, &[Change::Put(0, value)]);
        keyspace
            .compact(keyspace.current(), keyspace.current())
            .unwrap();
    }
    let last = hash(&keyspace, 21).unwrap();
    assert_eq!((last.compacted, last.revision), (20, 21));
    assert_eq!(hash(&keyspace, 12).unwrap().compacted, 11);
    assert_eq!(hash(&keyspace, 11).unwrap_err(), Error::Compacted);
}

fn events_from(keyspace: &Keyspace, from: Revision, synced: bool) -> Result<usize, Error> {
    let page = keyspace.events(EventQuery {
        range: &everything(),
        from,
        upto: keyspace.current(),
        synced,
        prev_above: Revision::MAX,
        limits: ALL,
    })?;
    assert_eq!(page.next, keyspace.current() + 1);
    Ok(page.events.len())
}

#[test]
fn a_read_of_compacted_events_is_refused_unless_the_watcher_is_synced() {
    let mut keyspace = Keyspace::default();
    for value in 0..10 {
        write(&mut keyspace, &[Change::Put(0, value)]);
    }
    keyspace.compact(8, keyspace.current()).unwrap();
    keyspace.reclaim(None, usize::MAX);
    assert_eq!(events_from(&keyspace, 7, false), Err(Error::Compacted));
    assert_eq!(events_from(&keyspace, 8, false), Ok(4));
    assert_eq!(events_from(&keyspace, 7, true), Ok(5));
}

#[test]
fn a_key_put_and_deleted_in_one_transaction_was_before_what_it_was_before_the_transaction() {
    let mut keyspace = Keyspace::default();
    write(&mut keyspace, &[Change::Put(0, 1)]);
    // The key that existed, and a new one.
    let changes = [Change::Put(0, 2), Change::Put(1, 2), Change::Delete(0, 2)];
    write(&mut keyspace, &changes);
    let page = keyspace.events(EventQuery {
        range: &everything(),
        from: 3,
        upto: 3,
        synced: true,
        prev_above: 0,
        limits: ALL,
    });
    let events = page.unwrap().events;
    let prevs = events.iter().map(|event| {
        let prev = event.prev_kv().map(|prev| prev.value.to_vec());
        (event.is_delete(), prev)
    });
    let before = Some(vec![1]);
    let wanted = [
        (false, before.clone()),
        (false, None),
        (true, before),
        (true, None),
    ];
    assert!(prevs.eq(wanted), "{events:?}");
}

#[test]
fn a_watch_from_a_compacted_revision_with_too_many_events_is_refused() {
    let mut keyspace = Keyspace::default();
    let mut write = keyspace.write();
    for n in 0..20_000_u32 {
        write.put(Put {
            key: &n.to_be_bytes(),
            value: b"",
            lease: 0,
        });
    }
    write.commit();
    keyspace.compact(2, 2).unwrap();
    assert_eq!((keyspace.watchable(), keyspace.compacted()), (2, 2));
    keyspace.reclaim(None, usize::MAX);
    assert_eq!((keyspace.watchable(), keyspace.compacted()), (3, 2));
    assert_eq!(events_from(&keyspace, 2, true), Err(Error::Compacted));
    assert_eq!(
        keyspace
            .at(2)
            .range(&request(&everything(), 0))
            .unwrap()
            .count,
        20_000
    );
}

#[test]
fn keys_that_are_deleted_together_are_those_that_exist_in_their_order() {
    let mut keyspace = Keyspace::default();
    let keys: Vec<Bytes> = (0..100).map(key).collect();
    let odd = keys.iter().skip(1).step_by(2);
    for key in odd.clone() {
        let mut write = keyspace.write();
        write.put(Put {
            key,
            value: b"1",
            lease: 0,
        });
        write.commit();
    }
    for expected in [50, 0] {
        let mut write = keyspace.write();
        write.delete_keys(&keys);
        let before = write.commit();
        let events: Vec<_> = keyspace.events_above(before).collect();
        assert!(events.iter().all(Event::is_delete));
        let deleted = events.iter().map(Event::key);
        assert!(deleted.eq(odd.clone().take(expected).map(Bytes::as_ref)));
        assert_eq!(keyspace.keys_live(), 0);
    }
    let past = read(&keyspace, keyspace.current() - 1).unwrap();
    assert!(past.keys().eq(odd), "the versions before are still read");
}

#[test]
fn a_slice_of_an_old_list_ends_after_a_number_of_versions_whatever_the_number_of_keys() {
    let mut keyspace = Keyspace::default();
    for _ in 0..200 {
        let changes: Vec<_> = (0..8).map(|n| Change::Put(n, 1)).collect();
        write(&mut keyspace, &changes);
    }
    for (revision, slices) in [(2, 3), (0, 1)] {
        let request = request(&everything(), revision);
        let mut read = RangeRead::new(keyspace.now(), &request).unwrap();
        let unfinished = std::iter::from_fn(|| (!read.slice(&keyspace)).then_some(()));
        assert_eq!(unfinished.count() + 1, slices);
        assert_eq!(read.finish().count, 8);
    }
}

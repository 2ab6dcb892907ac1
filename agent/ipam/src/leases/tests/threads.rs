//! Concurrent threads share syncs, failures and the file.

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::yield_now();
    }
}

#[test]
fn ten_thousand_concurrent_reservations_share_syncs_and_get_distinct_addresses() {
    const THREADS: usize = 100;
    const EACH: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let reserve = |t: usize, i: usize| {
        let request = request(&format!("{t}.{i}"));
        let suffix = leases.reserve(&request, now(1)).unwrap().suffix;
        leases.confirm(suffix).unwrap();
        suffix
    };
    let suffixes: Vec<Suffix> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| scope.spawn(move || (0..EACH).map(|i| reserve(t, i)).collect::<Vec<_>>()))
            .collect();
        let joined = threads.into_iter().flat_map(|t| t.join().unwrap());
        joined.collect()
    });
    let distinct: HashSet<_> = suffixes.iter().collect();
    assert_eq!(distinct.len(), THREADS * EACH);
    let writes = leases.writes();
    println!(
        "{} changes in {} syncs: {:.1} each, at most {} at once",
        writes.records,
        writes.syncs,
        writes.records as f64 / writes.syncs as f64,
        writes.records_at_once_max
    );
    assert_eq!(writes.records, 20_000);
    assert!((1..writes.records / 4).contains(&writes.syncs));
    // Each waiting thread has one record in the batch.
    assert!(writes.records_at_once_max <= THREADS);
    let before = held(&leases);
    drop(leases);
    assert_eq!(held(&open(&path)), before);
}

/// Takes the journal, and returns it once the threads have queued `records` records.
fn gather(leases: &Leases, records: usize, threads: impl FnOnce()) -> Journal {
    let journal = leases.lock().journal.take().unwrap();
    threads();
    wait_until("the batch", || leases.lock().batch.len() == records);
    journal
}

fn return_journal(leases: &Leases, journal: Journal) {
    leases.lock().journal = Some(journal);
    leases.written.notify_all();
}

#[test]
fn a_failed_write_fails_and_undoes_exactly_the_changes_of_its_batch() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let old = leases.reserve(&request("old"), now(1)).unwrap();
    let before = held(&leases);
    let reserve = |name: &str| {
        leases
            .reserve(&request(name), now(2))
            .map(|lease| lease.suffix)
    };
    let names = ["a", "b", "c", "d"];
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut journal = gather(&leases, 6, || {
            threads.extend(names.map(|name| scope.spawn(move || reserve(name).map(|_| ()))));
            threads.push(scope.spawn(|| leases.confirm(old.suffix)));
            threads.push(scope.spawn(|| leases.free(old.suffix, now(2))));
        });
        let writable = journal.swap_file(File::open(&path).unwrap());
        return_journal(&leases, journal);
        for failed in threads {
            let error = failed.join().unwrap().unwrap_err();
            assert!(
                error.to_string().contains("append to the journal"),
                "{error}"
            );
        }
        let without_cursor = |mut records: Vec<Record>| {
            records.retain(|record| !matches!(record, Record::Cursor(_)));
            records
        };
        assert_eq!(without_cursor(held(&leases)), without_cursor(before));
        assert!(reserve("e").is_err());
        leases.lock().journal.as_mut().unwrap().swap_file(writable);
    });
    let after: HashSet<_> = names.iter().map(|name| reserve(name).unwrap()).collect();
    assert_eq!(after.len(), 4);
    let kept = held(&leases);
    drop(leases);
    assert_eq!(held(&open(&path)), kept);
}

#[test]
fn a_batch_is_written_by_one_sync() {
    let folder = folder();
    let leases = open(&folder.path().join("leases"));
    let suffixes = ["a", "b", "c"].map(|name| {
        let lease = leases.reserve(&request(name), now(2));
        lease.unwrap().suffix
    });
    thread::scope(|scope| {
        let journal = gather(&leases, 3, || {
            for suffix in suffixes {
                let leases = &leases;
                scope.spawn(move || leases.confirm(suffix).unwrap());
            }
        });
        return_journal(&leases, journal);
    });
    let writes = leases.writes();
    assert_eq!(
        (writes.records, writes.syncs, writes.records_at_once_max),
        (6, 1, 3)
    );
}

#[test]
fn the_start_of_an_operation_is_written_and_its_end_is_synced() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let written = |last: Record, syncs: u64| {
        let (records, _) = scan(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(records.last(), Some(&last));
        assert_eq!(leases.writes().syncs, syncs, "{last:?}");
    };
    let lease = leases.reserve(&request("a"), now(1)).unwrap();
    written(Record::Reserve(Arc::clone(&lease)), 0);
    leases.confirm(lease.suffix).unwrap();
    written(Record::Live(lease.suffix), 1);
    leases.release(lease.suffix).unwrap();
    written(Record::Release(lease.suffix), 1);
    leases.free(lease.suffix, now(2)).unwrap();
    written(Record::Free(lease.suffix, now(2)), 2);
    let adopted = Lease {
        state: State::Live,
        ..Lease::clone(&lease)
    };
    leases.adopt(&adopted).unwrap();
    written(Record::Reserve(Arc::new(adopted)), 3);
}

#[test]
fn a_claimed_address_is_neither_leased_nor_free_until_written() {
    let folder = folder();
    let leases = open(&folder.path().join("leases"));
    let wanted = Request {
        address: Some("2001:db8::20".parse().unwrap()),
        ..request("a")
    };
    thread::scope(|scope| {
        let journal = gather(&leases, 1, || {
            scope.spawn(|| leases.reserve(&wanted, now(1)).unwrap());
        });
        assert_eq!(leases.lease(&wanted.key), None);
        let again = leases.reserve(&wanted, now(1)).unwrap_err().to_string();
        assert!(again.contains("already holds 2001:db8::20"), "{again}");
        let other = Request {
            key: request("b").key,
            ..wanted.clone()
        };
        let taken = leases.reserve(&other, now(1)).unwrap_err().to_string();
        assert!(taken.contains("held by pods/a/eth0"), "{taken}");
        return_journal(&leases, journal);
    });
    assert!(leases.lease(&wanted.key).is_some());
}

#[test]
fn compaction_loses_no_concurrent_write() {
    let folder = folder();
    let path = folder.path().join("leases");
    let leases = open(&path);
    let done = AtomicBool::new(false);
    let churn = |t: u64| {
        let mut kept = 0u64;
        while !done.load(Ordering::Relaxed) {
            let gone = leases
                .reserve(&request(&format!("gone {t}")), now(1))
                .unwrap();
            leases.free(gone.suffix, now(1)).unwrap();
            if kept < 200 {
                leases
                    .reserve(&request(&format!("kept {t}.{kept}")), now(1))
                    .unwrap();
                kept += 1;
            }
        }
    };
    thread::scope(|scope| {
        for t in 0..8 {
            scope.spawn(move || churn(t));
        }
        wait_until("compactions", || leases.writes().compactions >= 3);
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(leases.writes().compactions_failed, 0);
    let before = held(&leases);
    drop(leases);
    assert_eq!(held(&open(&path)), before);
}

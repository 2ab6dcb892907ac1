//! Time of a lease on a node with few and with many leases, one figure per line: `name<TAB>value<TAB>unit`. The journal is
//! below `DORMOUSE_BENCH_DIR`, else in the temporary folder; use a disk, because most of the time is spent on syncs.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends at its first fault, and prints its figures"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dormouse_agent_ipam::journal::Journal;
use dormouse_agent_ipam::record::Record;
use dormouse_agent_ipam::{
    BootId, Lease, LeaseKey, Leases, NetnsId, NodePrefix, Opening, Request, State, Suffix,
};

const HELD: [u32; 3] = [10, 1_000, 100_000];
const ROUNDS: u32 = 1_000;
const BOOT: BootId = BootId([7; 16]);

fn main() {
    let base =
        std::env::var_os("DORMOUSE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    for held in HELD {
        let folder = tempfile::tempdir_in(&base).unwrap();
        let path = folder.path().join("leases");
        prefill(&path, held);
        let begun = Instant::now();
        let leases = Leases::open(&path, opening()).unwrap();
        report(
            &format!("open with {held} leases"),
            begun.elapsed(),
            1_000,
            "ms",
        );
        assert_eq!(leases.leases().len(), usize::try_from(held).unwrap());
        for threads in [1, 4] {
            measure(&leases, held, threads);
        }
        compaction(&leases, held);
    }
}

fn opening() -> Opening {
    Opening::new(prefix(), BOOT)
}

fn prefix() -> NodePrefix {
    "2001:db8::/96".parse().unwrap()
}

/// A key as long as a container runtime's.
fn key(thread: u32, round: u32) -> LeaseKey {
    LeaseKey {
        network: "dormouse".into(),
        container: format!("{thread:032x}{round:032x}"),
        ifname: "eth0".into(),
    }
}

fn prefill(path: &Path, held: u32) {
    let prefix = prefix();
    let lease = |n| Lease {
        key: key(u32::MAX, n),
        suffix: Suffix(0x1_0000 + n),
        state: State::Live,
        netns: NetnsId {
            dev: 4,
            ino: n.into(),
        },
        since: Duration::ZERO,
        ipv4: None,
        wired: true,
    };
    let mut records = vec![Record::Header { boot: BOOT, prefix }];
    records.extend((0..held).map(|n| Record::Reserve(Arc::new(lease(n)))));
    Journal::create_replacement(path, &records)
        .unwrap()
        .replace()
        .unwrap();
}

/// Times until a lease is reserved and until it is confirmed. Freeing it is not measured.
fn attach(leases: &Leases, key: LeaseKey) -> (Duration, Duration) {
    let begun = Instant::now();
    let request = Request::new(key, NetnsId::default());
    let lease = leases.reserve(&request, Duration::from_secs(1)).unwrap();
    let reserved = begun.elapsed();
    leases.confirm(lease.suffix).unwrap();
    let confirmed = begun.elapsed();
    leases.free(lease.suffix, Duration::from_secs(1)).unwrap();
    (reserved, confirmed)
}

fn measure(leases: &Leases, held: u32, threads: u32) {
    let begun = Instant::now();
    let before = leases.writes();
    let rounds = |t| (0..ROUNDS).map(move |n| attach(leases, key(t, n)));
    let mut times: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || rounds(t).collect::<Vec<_>>()))
            .collect();
        all.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let wall = begun.elapsed();
    let what = format!("{held} leases, {threads} threads");
    let mut reserved: Vec<_> = times.iter().map(|(reserved, _)| *reserved).collect();
    reserved.sort_unstable();
    times.sort_unstable_by_key(|(_, confirmed)| *confirmed);
    report(
        &format!("{what}: reserve, median"),
        reserved[reserved.len() / 2],
        1_000_000,
        "us",
    );
    report(
        &format!("{what}: reserve and confirm, median"),
        times[times.len() / 2].1,
        1_000_000,
        "us",
    );
    report(
        &format!("{what}: reserve and confirm, 99 of 100"),
        times[times.len() * 99 / 100].1,
        1_000_000,
        "us",
    );
    let after = leases.writes();
    let (records, syncs) = (after.records - before.records, after.syncs - before.syncs);
    println!(
        "{what}: reserve, confirm and free\t{:.0}\t/s",
        times.len() as f64 / wall.as_secs_f64()
    );
    println!(
        "{what}: changes a sync\t{:.2}\t",
        records as f64 / syncs as f64
    );
}

/// The longest reservation during a compaction.
fn compaction(leases: &Leases, held: u32) {
    let before = leases.writes().compactions;
    let (mut longest, mut round) = (Duration::ZERO, 0);
    let deadline = Instant::now() + Duration::from_mins(1);
    thread::scope(|scope| {
        let churn = |t| {
            let mut n = 0;
            while leases.writes().compactions == before && Instant::now() < deadline {
                attach(leases, key(t, n));
                n += 1;
            }
        };
        for t in 1..64 {
            scope.spawn(move || churn(t));
        }
        while leases.writes().compactions == before && Instant::now() < deadline {
            let begun = Instant::now();
            let request = Request::new(key(0, round), NetnsId::default());
            let lease = leases.reserve(&request, Duration::from_secs(1)).unwrap();
            longest = longest.max(begun.elapsed());
            leases.free(lease.suffix, Duration::from_secs(1)).unwrap();
            round += 1;
        }
    });
    if leases.writes().compactions > before {
        report(
            &format!("{held} leases, 64 threads, compaction: longest reserve"),
            longest,
            1_000,
            "ms",
        );
    }
}

fn report(what: &str, time: Duration, per_second: u32, unit: &str) {
    println!(
        "{what}\t{:.1}\t{unit}",
        time.as_secs_f64() * f64::from(per_second)
    );
}

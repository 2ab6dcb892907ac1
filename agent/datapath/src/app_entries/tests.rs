//! Entries in the arrays, before and after a restart, and the reuse of ids after a grace period.

use super::*;
use crate::entry::Backend;
use crate::grace::Graces;
use crate::pool::Key;

fn backend(node: u8, pod: u8) -> Backend {
    let address = [
        0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, node, 0, 0, 0, pod,
    ];
    Backend {
        address: address.into(),
        port: 8000,
        weight: 1,
    }
}

fn entry(vip: u32, backends: &[Backend]) -> Entry {
    Entry {
        vip,
        mode: if backends.is_empty() {
            Mode::Proxy
        } else {
            Mode::Serve
        },
        share: 0,
        backends: backends.to_vec(),
        leased: true,
        asleep: backends.is_empty(),
        gone: false,
        port: 80,
        protocol: 6,
    }
}

/// Arrays and their allocators.
struct Bench {
    arrays: Arrays,
    pool: Pool,
}

impl Bench {
    fn new() -> Self {
        let arrays = Arrays::anonymous().unwrap();
        let pool = Pool::read(&arrays, Graces::default());
        Self { arrays, pool }
    }

    fn publish(&mut self, entry: &Entry) -> Result<(), DatapathError> {
        publish(&self.arrays, &self.pool, entry)
    }

    fn route(&self, vip: u32) -> Route {
        self.arrays.slot(vip).0
    }

    /// The backends that programs would choose from, with ids.
    fn seen(&self, vip: u32) -> Vec<(Key, u32)> {
        let (_, set) = self.arrays.slot(vip);
        let mut members = Vec::new();
        pool::members(&self.arrays, Set { leaving: 0, ..set }, &mut members);
        let seen = members.iter();
        seen.map(|member| (member.row.key, member.id.unwrap()))
            .collect()
    }

    fn keys(&self, vip: u32) -> Vec<Key> {
        self.seen(vip).into_iter().map(|(key, _)| key).collect()
    }
}

fn keys(backends: &[Backend]) -> Vec<Key> {
    backends
        .iter()
        .map(|backend| (backend.address.octets(), backend.port))
        .collect()
}

#[test]
fn the_kernel_reads_what_was_published_sorted() {
    let mut bench = Bench::new();
    let many: Vec<Backend> = (0..40).map(|pod| backend(pod % 3, pod)).collect();
    bench.publish(&entry(7, &many)).unwrap();
    let mut expected = keys(&many);
    expected.sort_unstable();
    assert_eq!(bench.keys(7), expected);
    let route = bench.route(7);
    assert!(route.present && route.leased && !route.asleep && !route.weighted);
    assert_eq!((route.mode, route.port), (Mode::Serve, 80));
}

#[test]
fn a_new_agent_continues_with_the_content_of_the_arrays() {
    let mut bench = Bench::new();
    let both = [backend(1, 1), backend(2, 2)];
    bench.publish(&entry(1, &both)).unwrap();
    bench.publish(&entry(900_000, &both[1..])).unwrap();
    bench.publish(&entry(5, &[])).unwrap();
    let (before, used) = (bench.seen(1), bench.pool.used());
    bench.pool = Pool::read(&bench.arrays, Graces::default());
    assert_eq!(followed(&bench.arrays), [1, 5, 900_000]);
    assert_eq!(bench.pool.used(), used);
    bench.publish(&entry(1, &both)).unwrap();
    bench.publish(&entry(6, &[backend(3, 3)])).unwrap();
    assert_eq!(bench.seen(1), before);
    assert_eq!(bench.keys(6), keys(&[backend(3, 3)]));
    for vip in [1, 5, 6, 900_000] {
        forget(&bench.arrays, &bench.pool, vip);
    }
    assert_eq!(bench.pool.used(), [0; 3]);
}

#[test]
fn two_apps_never_share_the_row_of_a_backend() {
    let mut bench = Bench::new();
    bench.publish(&entry(1, &[backend(1, 1)])).unwrap();
    bench.publish(&entry(2, &[backend(1, 1)])).unwrap();
    assert_ne!(bench.seen(1)[0].1, bench.seen(2)[0].1);
}

#[test]
fn a_removed_backend_changes_generation_at_once_and_its_id_is_in_quarantine_for_a_grace_period() {
    let mut bench = Bench::new();
    let all = |bench: &Bench| bench.pool.used()[0];
    bench.publish(&entry(1, &[backend(1, 1)])).unwrap();
    let id = bench.seen(1)[0].1;
    let generation = bench.arrays.backend(id).unwrap().generation;
    bench.publish(&entry(1, &[])).unwrap();
    assert_ne!(bench.arrays.backend(id).unwrap().generation, generation);
    assert_eq!(all(&bench), 0);
    bench.publish(&entry(2, &[backend(1, 2)])).unwrap();
    assert_ne!(bench.seen(2)[0].1, id);
}

#[test]
fn a_backend_without_weight_keeps_its_connections_and_gets_no_new_ones() {
    let mut bench = Bench::new();
    let weighing = |weight| Backend {
        weight,
        ..backend(1, 1)
    };
    bench
        .publish(&entry(1, &[weighing(5), backend(2, 2)]))
        .unwrap();
    let before = bench.seen(1);
    assert!(bench.route(1).weighted);
    bench
        .publish(&entry(1, &[weighing(0), backend(2, 2)]))
        .unwrap();
    assert_eq!(bench.keys(1), keys(&[backend(2, 2)]));
    assert_eq!(bench.arrays.slot(1).1.leaving, 1);
    bench
        .publish(&entry(1, &[weighing(1), backend(2, 2)]))
        .unwrap();
    assert_eq!(bench.seen(1), before);
    assert!(!bench.route(1).weighted);
}

#[test]
fn each_sleep_has_its_own_generation_and_a_repeated_entry_does_not_start_one() {
    let mut bench = Bench::new();
    let generation = |bench: &mut Bench, backends: &[Backend]| {
        bench.publish(&entry(1, backends)).unwrap();
        bench.route(1).sleep()
    };
    assert_eq!(generation(&mut bench, &[]), 1);
    assert_eq!(generation(&mut bench, &[]), 1);
    assert_eq!(generation(&mut bench, &[backend(1, 1)]), 1);
    assert_eq!(generation(&mut bench, &[]), 2);
    forget(&bench.arrays, &bench.pool, 1);
    assert_eq!(
        bench.route(1),
        Route {
            owner: Owner::App { share: 0, sleep: 3 },
            ..Route::ABSENT
        }
    );
    assert_eq!(generation(&mut bench, &[]), 4);
}

#[test]
fn an_event_that_may_have_been_lost_is_repeated_until_it_is_answered() {
    let mut bench = Bench::new();
    bench.publish(&entry(1, &[])).unwrap();
    bench.arrays.touch.store(1, noted(bench.route(1)));
    bench.arrays.touch.store(9, noted(bench.route(9)));
    let told: Vec<_> = unanswered(&bench.arrays)
        .iter()
        .map(|event| (event.vip, event.kind))
        .collect();
    assert_eq!(told, [(1, EventKind::Wake), (9, EventKind::Miss)]);
    bench.publish(&entry(1, &[backend(1, 1)])).unwrap();
    bench.publish(&entry(9, &[])).unwrap();
    assert_eq!(unanswered(&bench.arrays), []);
}

#[test]
fn an_index_past_the_maps_and_too_many_backends_are_refused() {
    let mut bench = Bench::new();
    assert!(matches!(
        bench.publish(&entry(VIPS_MAX, &[])),
        Err(DatapathError::Index { .. })
    ));
    let many: Vec<Backend> = (0..=u16::MAX)
        .map(|port| Backend {
            port,
            ..backend(1, 1)
        })
        .collect();
    assert!(matches!(
        bench.publish(&entry(1, &many)),
        Err(DatapathError::Full { .. })
    ));
    assert_eq!(bench.pool.used(), [0; 3]);
}

#[test]
fn a_withdrawn_pod_leaves_the_entries_that_have_it_and_no_other() {
    let mut bench = Bench::new();
    bench
        .publish(&entry(1, &[backend(1, 1), backend(2, 2)]))
        .unwrap();
    bench.publish(&entry(2, &[backend(2, 2)])).unwrap();
    let (route, other) = (bench.route(1), bench.seen(2));
    let pod = backend(1, 1).address;
    for vip in [1, 2, 3] {
        withdraw(&bench.arrays, &bench.pool, vip, pod).unwrap();
    }
    assert_eq!(bench.keys(1), keys(&[backend(2, 2)]));
    assert_eq!((bench.route(1), bench.seen(2)), (route, other));
}

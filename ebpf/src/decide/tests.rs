//! Decisions for an app over maps of one VIP: mode, share, lease, port. Those for Services are compared with kube-proxy's.

use super::*;
use crate::config::{Activator, Range};
use crate::maps::{Affinity, AffinityKey, FOR_CLUSTER};
use crate::pick::mix;
use crate::service::{Owner, SHARE_WHOLE};

const VIP: [u8; 16] = [0xfd, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const LEASE_UNTIL_NS: u64 = 100;

/// The maps of a node that follows one app with two backends, of which the second weighs three times the first.
struct Maps {
    config: Config,
    route: Route,
    now_ns: u64,
}

const SERVED: Route = Route {
    mode: Mode::Serve,
    present: true,
    leased: true,
    port: 80,
    ..Route::ABSENT
};

fn maps(route: Route) -> Maps {
    let mut config = Config {
        ranges_len: 1,
        activators_len: 1,
        ..Config::default()
    };
    config.ranges[0] = Range {
        prefix: join(&VIP, [0; 4]),
        mask: 0xfff0_0000,
        base: 0,
    };
    config.activators[0] = Activator {
        prefix: [0xa1; 16],
        via: [0xc0; 16],
    };
    Maps {
        config,
        route,
        now_ns: 0,
    }
}

impl Tables for Maps {
    fn config(&self) -> Option<&Config> {
        Some(&self.config)
    }
    fn route(&self, slot: u32) -> Option<u64> {
        (slot == 7).then(|| self.route.pack())
    }
    fn set(&self, _: u32) -> Option<u64> {
        let set = Set {
            count: 2,
            ..Set::default()
        };
        Some(set.pack())
    }
    fn id(&self, place: u32) -> Option<u32> {
        Some(place)
    }
    fn backend(&self, id: u32) -> Option<Backend> {
        let host = id.to_be_bytes();
        (id < 2).then_some(Backend {
            host,
            port: 8000,
            flags: FOR_CLUSTER,
            weight: if id == 0 { 1 } else { 3 },
            ..Backend::default()
        })
    }
    fn prefix(&self, _: u32) -> Option<[u8; 16]> {
        Some([0x20; 16])
    }
    fn frontend_filter(&self, _: u32) -> u64 {
        0
    }
    fn frontend(&self, _: &FrontendKey) -> Option<u32> {
        None
    }
    fn has_pod(&self, _: &[u8; 16]) -> bool {
        false
    }
    fn slot_options(&self, _: u32) -> Option<SlotOptions> {
        None
    }
    fn in_source_range(&self, _: u32, _: &[u8; 16]) -> bool {
        true
    }
    fn affinity(&self, _: &AffinityKey) -> Option<Affinity> {
        None
    }
    fn lease_until_ns(&self) -> u64 {
        LEASE_UNTIL_NS
    }
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

fn decided(maps: &Maps, port: u16, hash: u64) -> (Decision, Choice) {
    let request = Request {
        target: VIP,
        port,
        protocol: 6,
        hash,
        ..Request::default()
    };
    let mut choice = Choice::default();
    (decide(maps, &request, &mut choice), choice)
}

#[test]
fn an_affinity_entry_replaces_a_half_whose_backend_is_gone_before_the_older_one() {
    let maps = maps(SERVED);
    let choice = |backend, generation| Choice {
        backend,
        generation,
        ..Choice::default()
    };
    let record = |before, backend, generation, now_ns| {
        Some(record_affinity(
            &maps,
            before,
            &choice(backend, generation),
            now_ns,
        ))
    };
    let halves = |affinity: Option<Affinity>| {
        let affinity = affinity.unwrap_or_default();
        let mut halves = [0, 1].map(|at| (affinity.ids[at], affinity.generations[at]));
        halves.sort_unstable();
        halves
    };
    // Generation 0 of both backends is there.
    let gone_last = record(record(None, 0, 0, 10), 1, 9, 20);
    assert_eq!(halves(gone_last), [(0, 0), (1, 9)]);
    assert_eq!(halves(record(gone_last, 1, 0, 30)), [(0, 0), (1, 0)]);
    let gone_first = record(record(None, 1, 9, 10), 0, 0, 20);
    assert_eq!(halves(record(gone_first, 1, 0, 30)), [(0, 0), (1, 0)]);
    let both = record(record(gone_last, 1, 0, 30), 0, 0, 40);
    assert_eq!(halves(record(both, 1, 3, 50)), [(0, 0), (1, 3)]);
}

/// How many of many connections are decided so.
fn count(maps: &Maps, fits: impl Fn(Decision, Choice) -> bool) -> usize {
    let all = (0..10_000).map(|n| decided(maps, 80, mix(n)));
    all.filter(|(answer, choice)| fits(*answer, *choice))
        .count()
}

#[test]
fn a_served_vip_is_served_until_the_nanosecond_in_which_the_lease_ends() {
    let mut maps = maps(SERVED);
    maps.now_ns = LEASE_UNTIL_NS - 1;
    assert_eq!(decided(&maps, 80, 1).0, Decision::Forward(None));
    maps.now_ns = LEASE_UNTIL_NS;
    let (answer, choice) = decided(&maps, 80, 1);
    assert_eq!(answer, Decision::Forward(Some(Verdict::LeaseOver)));
    assert_eq!((choice.address[0], choice.backend), (0xa1, NO_BACKEND));
    maps.route.leased = false;
    assert_eq!(
        decided(&maps, 80, 1).0,
        Decision::Forward(None),
        "not leased"
    );
}

#[test]
fn the_share_takes_its_part_of_the_connections() {
    for share in [0, 51, SHARE_WHOLE] {
        let maps = maps(Route {
            owner: Owner::App { share, sleep: 0 },
            ..SERVED
        });
        let shared = count(&maps, |answer, _| {
            answer == Decision::Forward(Some(Verdict::Shared))
        });
        let wanted = 10_000 * usize::from(share) / usize::from(SHARE_WHOLE);
        assert!(shared.abs_diff(wanted) < 200, "{share}: {shared}");
    }
}

#[test]
fn weights_are_kept_by_pods_and_by_outside_traffic() {
    let maps = maps(Route {
        weighted: true,
        ..SERVED
    });
    let second = count(&maps, |_, choice| choice.backend == 1);
    assert!((7_200..7_800).contains(&second), "{second}");
}

#[test]
fn equal_weights_are_equal_chances() {
    let maps = maps(SERVED);
    let second = count(&maps, |_, choice| choice.backend == 1);
    assert!((4_800..5_200).contains(&second), "{second}");
}

#[test]
fn another_port_and_a_vip_that_is_not_followed_are_forwarded_to_the_activator() {
    let served = maps(SERVED);
    let (answer, choice) = decided(&served, 81, 1);
    assert_eq!(answer, Decision::Forward(Some(Verdict::OtherPort)));
    assert_eq!(
        (choice.address[12..].to_vec(), choice.port),
        (vec![0, 0, 0, 7], 81)
    );
    let absent = maps(Route::ABSENT);
    assert_eq!(
        decided(&absent, 80, 1).0,
        Decision::Forward(Some(Verdict::Proxied))
    );
    let mut without = maps(Route::ABSENT);
    without.config.activators_len = 0;
    let dropped = Decision::Drop(Verdict::DroppedNoActivator);
    assert_eq!(decided(&without, 80, 1).0, dropped);
}

//! The mirror and the arrays agree, before and after a restart; ids are used again only after a grace period.

use super::*;
use crate::datapath::entry::Backend;
use dormouse_ebpf::service::Mode;

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

/// After so many grace periods, none under way.
fn after(periods: u64) -> Moment {
    Moment {
        begun: periods,
        over: periods,
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
    }
}

/// What the kernel would read for a VIP.
fn seen(arrays: &Arrays, vip: u32) -> Vec<Key> {
    let set = Set::unpack(arrays.svc.load(vip as usize * 2 + 1).unwrap());
    (set.offset..set.offset + u32::from(set.count))
        .map(|place| {
            let (prefix, host, port) = arrays.backend(arrays.id(place).unwrap()).unwrap();
            (address(arrays.prefix(prefix).unwrap(), host), port)
        })
        .collect()
}

fn keys(backends: &[Backend]) -> Vec<Key> {
    backends
        .iter()
        .map(|backend| (backend.address.octets(), backend.port))
        .collect()
}

#[test]
fn the_kernel_reads_what_was_published_sorted() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    let many: Vec<Backend> = (0..40).map(|pod| backend(pod % 3, pod)).collect();
    mirror.publish(&arrays, &entry(7, &many), after(1)).unwrap();
    let mut expected = keys(&many);
    expected.sort_unstable();
    assert_eq!(seen(&arrays, 7), expected);
    let route = route(&arrays, 7);
    assert!(route.present && route.leased && !route.asleep);
    assert_eq!((route.mode, route.port), (Mode::Serve, 80));
}

#[test]
fn another_agent_reads_the_same_and_gives_the_same_ids() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    mirror
        .publish(
            &arrays,
            &entry(1, &[backend(1, 1), backend(2, 2)]),
            after(1),
        )
        .unwrap();
    mirror
        .publish(&arrays, &entry(900_000, &[backend(2, 2)]), after(1))
        .unwrap();
    mirror.publish(&arrays, &entry(5, &[]), after(1)).unwrap();
    let mut second = Mirror::read(&arrays);
    assert_eq!(second.followed(), [1, 5, 900_000]);
    assert_eq!(second.vips, mirror.vips);
    assert_eq!(second.backends.known, mirror.backends.known);
    assert_eq!(second.prefixes.known, mirror.prefixes.known);
    second
        .publish(&arrays, &entry(6, &[backend(3, 3)]), after(1))
        .unwrap();
    assert_eq!(seen(&arrays, 1), keys(&[backend(1, 1), backend(2, 2)]));
    assert_eq!(seen(&arrays, 6), keys(&[backend(3, 3)]));
}

#[test]
fn a_removed_backends_id_is_not_used_again_before_a_grace_period() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    mirror
        .publish(&arrays, &entry(1, &[backend(1, 1)]), after(1))
        .unwrap();
    let old = mirror.backends.known[&keys(&[backend(1, 1)])[0]].0;
    mirror.publish(&arrays, &entry(1, &[]), after(1)).unwrap();
    mirror
        .publish(&arrays, &entry(2, &[backend(1, 2)]), after(1))
        .unwrap();
    assert_ne!(mirror.backends.known[&keys(&[backend(1, 2)])[0]].0, old);
    mirror
        .publish(&arrays, &entry(3, &[backend(1, 3)]), after(2))
        .unwrap();
    assert_eq!(mirror.backends.known[&keys(&[backend(1, 3)])[0]].0, old);
}

#[test]
fn each_sleep_has_its_own_generation_and_a_repeated_entry_does_not_begin_one() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    let generation = |mirror: &mut Mirror, backends: &[Backend]| {
        mirror
            .publish(&arrays, &entry(1, backends), after(1))
            .unwrap();
        route(&arrays, 1).generation
    };
    assert_eq!(generation(&mut mirror, &[]), 1);
    assert_eq!(generation(&mut mirror, &[]), 1);
    assert_eq!(generation(&mut mirror, &[backend(1, 1)]), 1);
    assert_eq!(generation(&mut mirror, &[]), 2);
    mirror.forget(&arrays, 1, after(1));
    assert_eq!(
        route(&arrays, 1),
        Route {
            generation: 3,
            ..Route::ABSENT
        }
    );
    assert_eq!(generation(&mut mirror, &[]), 4);
}

#[test]
fn an_event_that_may_have_been_lost_is_told_again_until_it_is_answered() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    mirror.publish(&arrays, &entry(1, &[]), after(1)).unwrap();
    arrays.touch.store(1, noted(route(&arrays, 1)));
    arrays.touch.store(9, noted(route(&arrays, 9)));
    let told: Vec<_> = Mirror::unanswered(&arrays)
        .iter()
        .map(|event| (event.vip, event.kind))
        .collect();
    assert_eq!(told, [(1, EventKind::Wake), (9, EventKind::Miss)]);
    mirror
        .publish(&arrays, &entry(1, &[backend(1, 1)]), after(1))
        .unwrap();
    mirror.publish(&arrays, &entry(9, &[]), after(1)).unwrap();
    assert_eq!(Mirror::unanswered(&arrays), []);
}

#[test]
fn an_index_past_the_maps_and_too_many_backends_are_refused() {
    let arrays = Arrays::anonymous().unwrap();
    let mut mirror = Mirror::read(&arrays);
    assert!(matches!(
        mirror.publish(&arrays, &entry(VIPS_MAX, &[]), after(1)),
        Err(DatapathError::Index { .. })
    ));
    let many: Vec<Backend> = (0..=u16::MAX)
        .map(|port| Backend {
            port,
            ..backend(1, 1)
        })
        .collect();
    assert!(matches!(
        mirror.publish(&arrays, &entry(1, &many), after(1)),
        Err(DatapathError::Full { .. })
    ));
}

//! The words hold what was put into them, and the decisions follow the words.

use super::*;
use proptest::prelude::*;

const SERVED: Route = Route {
    mode: Mode::Serve,
    present: true,
    leased: true,
    ..Route::ABSENT
};

proptest! {
    #[test]
    fn a_route_is_unpacked_as_it_was_packed(
        serve: bool, share: u8, flags in 0_u8..16, port: u16, generation: u32
    ) {
        let route = Route {
            mode: if serve { Mode::Serve } else { Mode::Proxy },
            share,
            leased: flags & 1 != 0,
            asleep: flags & 2 != 0,
            present: flags & 4 != 0,
            gone: flags & 8 != 0,
            port,
            generation,
        };
        prop_assert_eq!(Route::unpack(route.pack()), route);
    }

    #[test]
    fn a_set_is_unpacked_as_it_was_packed(offset in 0_u32..1 << 24, count: u16, generation in 0_u32..1 << 24) {
        let set = Set { offset, count, generation };
        prop_assert_eq!(Set::unpack(set.pack()), set);
    }

    #[test]
    fn any_word_is_some_route(word: u64) {
        let route = Route::unpack(word);
        prop_assert_eq!(Route::unpack(route.pack()), route);
    }
}

#[test]
fn the_zero_word_is_a_vip_that_is_not_followed() {
    assert_eq!(Route::unpack(0), Route::ABSENT);
    assert_eq!(Route::ABSENT.pack(), 0);
}

#[test]
fn a_served_vip_is_served_until_the_nanosecond_in_which_the_lease_ends() {
    assert_eq!(decide(SERVED, 100, 99, 0), Decision::Serve);
    assert_eq!(decide(SERVED, 100, 100, 0), Decision::LeaseOver);
    assert_eq!(
        decide(
            Route {
                leased: false,
                ..SERVED
            },
            100,
            101,
            0
        ),
        Decision::Serve
    );
    assert_eq!(decide(SERVED, u64::MAX, u64::MAX - 1, 0), Decision::Serve);
}

#[test]
fn the_share_takes_its_part_of_the_draws() {
    let to_activator = |share| {
        let route = Route { share, ..SERVED };
        (0..SHARE_WHOLE)
            .filter(|&draw| decide(route, u64::MAX, 0, draw) == Decision::Share)
            .count()
    };
    assert_eq!(to_activator(0), 0);
    assert_eq!(to_activator(51), 51);
    assert_eq!(to_activator(SHARE_WHOLE), usize::from(SHARE_WHOLE));
}

#[test]
fn a_sleep_raises_one_event_and_the_next_sleep_another() {
    let asleep = Route {
        present: true,
        asleep: true,
        generation: 7,
        ..Route::ABSENT
    };
    assert_eq!(wakes(asleep, 0), Some(EventKind::Wake));
    assert_eq!(wakes(asleep, noted(asleep)), None);
    let next = Route {
        generation: 8,
        ..asleep
    };
    assert_eq!(wakes(next, noted(asleep)), Some(EventKind::Wake));
}

#[test]
fn a_vip_without_entry_is_missed_once_and_an_awake_or_refused_one_never() {
    assert_eq!(wakes(Route::ABSENT, 0), Some(EventKind::Miss));
    assert_eq!(wakes(Route::ABSENT, noted(Route::ABSENT)), None);
    assert_eq!(wakes(SERVED, 0), None);
    assert_eq!(
        wakes(
            Route {
                present: true,
                asleep: true,
                gone: true,
                ..Route::ABSENT
            },
            0
        ),
        None
    );
}

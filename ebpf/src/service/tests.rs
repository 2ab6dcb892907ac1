//! The words hold what was put into them, and the decisions follow the words.

use super::*;
use crate::packet;
use proptest::prelude::*;

const SERVED: Route = Route {
    mode: Mode::Serve,
    present: true,
    leased: true,
    ..Route::ABSENT
};

proptest! {
    #[test]
    fn a_set_is_unpacked_as_it_was_packed(offset in 0_u32..1 << 24, count: u16, leaving: u16, version: u8) {
        let set = Set { offset, count, leaving, version };
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

const HTTP: Target = Target {
    port: 80,
    protocol: packet::TCP,
};

#[test]
fn only_packets_to_the_port_and_protocol_of_a_sleeping_app_wake_it() {
    let asleep = Route {
        present: true,
        asleep: true,
        port: 80,
        protocol: Protocol::Tcp,
        ..Route::ABSENT
    };
    let other = Target { port: 81, ..HTTP };
    let datagram = Target {
        protocol: packet::UDP,
        ..HTTP
    };
    assert_eq!(wakes(asleep, 0, HTTP), Some(EventKind::Wake));
    assert_eq!(wakes(asleep, 0, other), None);
    assert_eq!(wakes(asleep, 0, datagram), None);
    let any = Route { port: 0, ..asleep };
    assert_eq!(wakes(any, 0, other), Some(EventKind::Wake));
    assert_eq!(wakes(Route::ABSENT, 0, other), Some(EventKind::Miss));
}

#[test]
fn a_sleep_raises_one_event_and_the_next_sleep_another() {
    let asleep = Route {
        present: true,
        asleep: true,
        owner: Owner::App { share: 0, sleep: 7 },
        ..Route::ABSENT
    };
    assert_eq!(wakes(asleep, 0, HTTP), Some(EventKind::Wake));
    assert_eq!(wakes(asleep, noted(asleep), HTTP), None);
    let next = Route {
        owner: Owner::App { share: 0, sleep: 8 },
        ..asleep
    };
    assert_eq!(wakes(next, noted(asleep), HTTP), Some(EventKind::Wake));
}

#[test]
fn a_vip_without_entry_is_missed_once_and_an_awake_or_refused_one_never() {
    assert_eq!(wakes(Route::ABSENT, 0, HTTP), Some(EventKind::Miss));
    assert_eq!(wakes(Route::ABSENT, noted(Route::ABSENT), HTTP), None);
    assert_eq!(wakes(SERVED, 0, HTTP), None);
    assert_eq!(
        wakes(
            Route {
                present: true,
                asleep: true,
                gone: true,
                ..Route::ABSENT
            },
            0,
            HTTP
        ),
        None
    );
}

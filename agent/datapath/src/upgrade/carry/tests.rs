//! What is carried over, and what of it when both tables know a flow.

use super::*;

const FORGOTTEN_NS: u64 = 1_000;

fn flow(target_port: u16, seen_ns: u64) -> Flow {
    Flow {
        target_port,
        seen_ns,
        ..Flow::default()
    }
}

#[test]
fn a_flow_that_the_new_table_does_not_know_is_carried_as_it_is() {
    let old = flow(80, 7);
    assert_eq!(merged(&old, None, NOT_YET), Some(old));
    assert_eq!(merged(&old, Some(&old), NOT_YET), None);
}

#[test]
fn of_two_connections_with_the_same_ends_the_later_stays() {
    let old = flow(80, 900);
    let copied_before = flow(81, 800);
    assert_eq!(merged(&old, Some(&copied_before), NOT_YET), Some(old));
    assert_eq!(merged(&old, Some(&copied_before), FORGOTTEN_NS), Some(old));
    let begun_anew = flow(81, FORGOTTEN_NS);
    assert_eq!(merged(&old, Some(&begun_anew), FORGOTTEN_NS), None);
}

#[test]
fn how_far_a_connection_has_come_is_what_its_last_packet_said() {
    let with = |stage: u32, open: u64, seen_ns: u64| Flow {
        stage,
        open,
        ..flow(80, seen_ns)
    };
    // Copied while it was open, closed since.
    let closed = with(2, 0, 7);
    assert_eq!(merged(&closed, Some(&with(1, 1, 7)), NOT_YET), Some(closed));
    // Asked for again after an end.
    let again = with(0, 1, 8);
    assert_eq!(merged(&again, Some(&with(2, 0, 7)), NOT_YET), Some(again));
    // Its client, whose flow is carried over already, went on in the new table.
    let went_on = with(1, 0, 2_000);
    assert_eq!(merged(&with(0, 0, 7), Some(&went_on), FORGOTTEN_NS), None);
    let ended = with(2, 0, 7);
    let both = Some(with(2, 0, 2_000));
    assert_eq!(merged(&ended, Some(&went_on), FORGOTTEN_NS), both);
}

#[test]
fn what_has_no_room_is_what_was_silent_for_longest() {
    assert_eq!(latest(&mut [5, 3, 9, 1], 4), 0, "room for all");
    assert_eq!(latest(&mut [5, 3, 9, 1], 2), 5, "9 and 5");
    assert_eq!(latest(&mut [], 2), 0);
    assert_eq!(room(65_536), 28_672, "an eighth of it stays free");
}

#[test]
fn a_connection_that_is_over_is_not_carried() {
    const NOW_NS: u64 = 100 * NAT_REST_NS;
    let key = FlowKey {
        protocol: dormouse_ebpf::packet::TCP,
        ..FlowKey::default()
    };
    let reply = |kind: u32, stage: Stage, silent_ns: u64| Flow {
        kind: kind | REPLY,
        stage: stage as u32,
        seen_ns: NOW_NS - silent_ns,
        ..Flow::default()
    };
    let is_carried = |flow: Flow| leads(&key, &flow, NOW_NS);
    assert!(is_carried(reply(HIDDEN, Stage::Stands, 90 * NAT_REST_NS)));
    assert!(is_carried(reply(HIDDEN, Stage::Asked, NAT_REST_NS)));
    assert!(!is_carried(reply(HIDDEN, Stage::Asked, NAT_REST_NS + 1)));
    // Its port is nobody else's yet.
    assert!(is_carried(reply(HIDDEN, Stage::Ended, NAT_REST_NS)));
    assert!(!is_carried(reply(HIDDEN, Stage::Ended, NAT_REST_NS + 1)));
    // Where nothing hides, the next connection from the same port goes on with the same flows.
    assert!(is_carried(reply(0, Stage::Ended, 90 * NAT_REST_NS)));
    // What is sent goes with what is answered, if there are answers.
    assert!(!is_carried(Flow::default()));
    assert!(is_carried(Flow {
        kind: ONWARD,
        ..Flow::default()
    }));
}

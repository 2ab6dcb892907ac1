//! The flows that are copied, and the merged entry if both tables have one.

use dormouse_ebpf::packet::{Packet, TCP};
use dormouse_ebpf::stage::{Stage, TIME_WAIT_NS};

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
fn a_flow_missing_in_the_new_table_is_copied_unchanged() {
    let old = flow(80, 7);
    assert_eq!(merged(&old, None, NOT_YET), Some(old));
    assert_eq!(merged(&old, Some(&old), NOT_YET), None);
}

#[test]
fn of_two_connections_with_the_same_addresses_the_later_wins() {
    let old = flow(80, 900);
    let copied_before = flow(81, 800);
    assert_eq!(merged(&old, Some(&copied_before), NOT_YET), Some(old));
    assert_eq!(merged(&old, Some(&copied_before), FORGOTTEN_NS), Some(old));
    let begun_anew = flow(81, FORGOTTEN_NS);
    assert_eq!(merged(&old, Some(&begun_anew), FORGOTTEN_NS), None);
}

#[test]
fn the_state_of_a_connection_is_the_last_packets() {
    let with = |stage: u32, open: u64, seen_ns: u64| Flow {
        stage,
        open,
        ..flow(80, seen_ns)
    };
    // Copied while it was open, closed since.
    let closed = with(2, 0, 7);
    assert_eq!(merged(&closed, Some(&with(1, 1, 7)), NOT_YET), Some(closed));
    // Opened again after it was closed.
    let again = with(0, 1, 8);
    assert_eq!(merged(&again, Some(&with(2, 0, 7)), NOT_YET), Some(again));
    // Its forward flow was copied already, and the client continued in the new table.
    let went_on = with(1, 0, 2_000);
    assert_eq!(merged(&with(0, 0, 7), Some(&went_on), FORGOTTEN_NS), None);
    let ended = with(2, 0, 7);
    let both = Some(with(2, 0, 2_000));
    assert_eq!(merged(&ended, Some(&went_on), FORGOTTEN_NS), both);
}

#[test]
fn the_longest_idle_flows_have_no_room() {
    assert_eq!(latest(&mut [5, 3, 9, 1], 4), 0, "room for all");
    assert_eq!(latest(&mut [5, 3, 9, 1], 2), 5, "9 and 5");
    assert_eq!(latest(&mut [], 2), 0);
    assert_eq!(room(65_536), 28_672, "an eighth of the table stays free");
}

#[test]
fn a_closed_connection_is_not_copied() {
    const NOW_NS: u64 = 100 * TIME_WAIT_NS;
    let key = FlowKey {
        protocol: TCP.into(),
        ..FlowKey::default()
    };
    let reply = |kind: u32, stage: Stage, silent_ns: u64| Flow {
        kind: kind | REPLY,
        stage: stage.0,
        seen_ns: NOW_NS - silent_ns,
        ..Flow::default()
    };
    let after = |flags| Packet {
        protocol: TCP,
        flags,
        ..Packet::default()
    };
    let established = Stage::NEW.after_client(&after(0x10));
    let closed = established.after_backend(&after(0x11));
    let is_carried = |flow: Flow| leads(&key, &flow, NOW_NS);
    assert!(is_carried(reply(
        MASQUERADED,
        established,
        90 * TIME_WAIT_NS
    )));
    assert!(is_carried(reply(MASQUERADED, Stage::NEW, TIME_WAIT_NS)));
    assert!(!is_carried(reply(
        MASQUERADED,
        Stage::NEW,
        TIME_WAIT_NS + 1
    )));
    // Its NAT port is still in TIME_WAIT.
    assert!(is_carried(reply(MASQUERADED, closed, TIME_WAIT_NS)));
    assert!(!is_carried(reply(MASQUERADED, closed, TIME_WAIT_NS + 1)));
    // Without masquerade, the next connection from the same port uses the same flows.
    assert!(is_carried(reply(0, closed, 90 * TIME_WAIT_NS)));
    // A forward flow is copied with its reply flow, if there is one.
    assert!(!is_carried(Flow::default()));
    assert!(is_carried(Flow {
        kind: FORWARDED,
        ..Flow::default()
    }));
}

//! Segments of both sides, one after the other, and the stage and port that they result in.

use super::*;
use crate::packet::{SCTP, UDP};

const SYN: u8 = 0x02;
const FIN: u8 = 0x11;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

const fn packet(protocol: u8, flags: u8) -> Packet {
    Packet {
        source: [0; 16],
        target: [0; 16],
        source_port: 0,
        target_port: 0,
        l4: 0,
        len: 0,
        id: 0,
        protocol,
        hop_limit: 0,
        flags,
        v4: 0,
        fragment: 0,
        routed: 0,
        pad: 0,
    }
}

/// The stage after packets of the client (`>`) and of the backend (`<`), as a masqueraded connection's reply entry has it.
fn after(packets: &[(char, u8)]) -> Stage {
    packets
        .iter()
        .fold(Stage::default(), |stage, (side, flags)| {
            let packet = packet(TCP, *flags);
            if *side == '>' {
                stage.after_client(&packet)
            } else {
                stage.after_backend(&packet)
            }
        })
}

#[test]
fn each_segment_advances_the_state() {
    let open = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];
    let then = |more: &[(char, u8)]| after(&[&open[..], more].concat()).state();
    assert_eq!(after(&open[..1]).state(), State::Opening);
    assert_eq!(after(&open[..2]).state(), State::Opening, "half open");
    assert_eq!(then(&[]), State::Established);
    assert_eq!(then(&[('>', SYN)]), State::Established, "forged");
    assert_eq!(then(&[('>', FIN)]), State::Closing);
    assert_eq!(then(&[('<', FIN)]), State::Closing);
    assert_eq!(then(&[('<', FIN), ('>', FIN)]), State::Ended);
    assert_eq!(then(&[('>', FIN), ('<', FIN), ('>', ACK)]), State::Ended);
    assert_eq!(then(&[('>', RST)]), State::Ended);
    assert_eq!(then(&[('<', RST)]), State::Ended);
    assert_eq!(then(&[('<', FIN), ('>', FIN), ('>', SYN)]), State::Opening);
}

#[test]
fn both_entries_together_have_the_state() {
    let client = Stage::NEW.after_client(&packet(TCP, FIN));
    let backend = Stage::NEW.after_backend(&packet(TCP, FIN));
    assert_eq!(client.state(), State::Closing);
    assert_eq!(backend.state(), State::Closing);
    assert_eq!(client.and(backend).state(), State::Ended);
}

#[test]
fn entries_of_earlier_programs_are_never_taken_for_opening() {
    assert_eq!(Stage(0).state(), State::Unknown);
    assert_eq!(Stage(1).state(), State::Established);
    assert_eq!(Stage(2).state(), State::Ended);
}

#[test]
fn a_port_is_free_when_the_backend_has_left_time_wait() {
    let open = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];
    let free = |more: &[(char, u8)], silent_ns| {
        after(&[&open[..], more].concat()).releases_port(TCP, silent_ns)
    };
    let backend_first = [('<', FIN), ('>', FIN), ('<', ACK)];
    assert!(!free(&backend_first, TIME_WAIT_NS));
    assert!(free(&backend_first, TIME_WAIT_NS + 1));
    for without in [&[('>', FIN), ('<', FIN)][..], &[('>', RST)], &[('<', RST)]] {
        assert!(!free(without, IN_FLIGHT_NS));
        assert!(free(without, IN_FLIGHT_NS + 1), "no side holds TIME_WAIT");
    }
    assert!(!free(&[], u64::MAX), "established");
    assert!(!free(&[('>', FIN)], u64::MAX), "the backend may send on");
    assert!(!after(&open[..1]).releases_port(TCP, TIME_WAIT_NS));
    assert!(after(&open[..1]).releases_port(TCP, TIME_WAIT_NS + 1));
}

#[test]
fn an_ended_connection_gives_way_at_once_and_an_open_one_never() {
    let open = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];
    let gives = |more: &[(char, u8)], silent_ns| {
        after(&[&open[..], more].concat()).gives_way(TCP, silent_ns)
    };
    assert!(gives(&[('<', FIN), ('>', FIN)], 0));
    assert!(gives(&[('>', RST)], 0));
    assert!(!gives(&[], u64::MAX));
    assert!(!gives(&[('<', FIN)], IN_FLIGHT_NS));
    assert!(!after(&open[..1]).gives_way(TCP, IN_FLIGHT_NS));
    assert!(after(&open[..1]).gives_way(TCP, IN_FLIGHT_NS + 1));
}

#[test]
fn udp_and_sctp_have_no_time_wait() {
    let one = Stage::NEW;
    assert!(!one.releases_port(UDP, IN_FLIGHT_NS));
    assert!(one.releases_port(UDP, IN_FLIGHT_NS + 1));
    let stream = one.after_client(&packet(UDP, 0));
    assert!(!stream.releases_port(UDP, UDP_IDLE_NS));
    assert!(stream.releases_port(UDP, UDP_IDLE_NS + 1));
    // 14: SHUTDOWN COMPLETE (RFC 9260 3.2).
    let ended = one.after_client(&packet(SCTP, 14));
    assert_eq!(ended.state(), State::Ended);
    assert!(ended.releases_port(SCTP, 0));
}

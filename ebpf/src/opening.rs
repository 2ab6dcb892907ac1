//! Opening flows: connections that are not established yet. They have a table of their own, so that a flood of SYNs from forged
//! sources evicts other opening connections at most.
//!
//! Both entries of a connection begin in the map `opening`, and move to the map `flow` together when it is established: with the
//! client's packet after the backend's answer, for UDP with the answer. TCP's packet must acknowledge the backend's initial
//! sequence number, which a client with a forged source does not know. Of a forwarded connection this node sees no answers:
//! the client's second packet establishes it.

use crate::packet::{Packet, TCP};
use crate::stage::Stage;

/// The lowest bit of the expected acknowledgement number in [`Flow::open`](crate::flow::Flow::open) of an opening reply flow; 0:
/// this node has seen no SYN of the backend.
pub const EXPECTED_SHIFT: u32 = 32;

/// The smallest map `opening`, in entries: it has room for a burst of connections, however small the map `flow` is.
const OPENING_MIN: u32 = 1 << 10;

/// Bytes that the backend may have sent, and the client acknowledged, before the client's first packet seen here (RFC 7413).
const SENT_AHEAD_MAX: u32 = 1 << 16;

/// Entries of the map `opening`, of a node whose map `flow` has `flows_max`.
pub const fn opening_max(flows_max: u32) -> u32 {
    let quarter = flows_max / 4;
    if quarter < OPENING_MIN {
        OPENING_MIN
    } else {
        quarter
    }
}

/// The acknowledgement number that answers a SYN with this sequence number, at its place in `Flow::open`.
#[inline(always)]
pub const fn expected(sequence: u32) -> u64 {
    (sequence.wrapping_add(1) as u64) << EXPECTED_SHIFT
}

/// Whether a client's packet may establish a connection, by its header alone.
#[inline(always)]
pub const fn may_confirm(packet: &Packet) -> bool {
    let is_further = !packet.opens() && !packet.resets() && !packet.accepts();
    // A later fragment has no header.
    is_further && packet.l4 != 0 && (packet.protocol != TCP || packet.acknowledges())
}

/// Whether a client's packet that may confirm establishes its connection. `stage` is that of both flows before the packet, `open` is
/// the reply flow's, `acknowledged` is TCP's acknowledgement number.
#[inline(always)]
pub const fn is_confirmed(stage: Stage, open: u64, acknowledged: u32) -> bool {
    let [a, b, c, d, ..] = open.to_be_bytes();
    let expected = u32::from_be_bytes([a, b, c, d]);
    let is_expected = expected == 0 || acknowledged.wrapping_sub(expected) < SENT_AHEAD_MAX;
    stage.is_replied() && !stage.is_aborted() && is_expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{COUNTED, FLOWS_MAX, LOADED, TAKEN};
    use crate::packet::{SCTP, UDP};

    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;

    fn packet(protocol: u8, flags: u8) -> Packet {
        Packet {
            protocol,
            flags,
            l4: 54,
            ..Packet::default()
        }
    }

    fn answered() -> Stage {
        Stage::NEW.after_backend(&packet(TCP, SYN | ACK))
    }

    #[test]
    fn opening_connections_have_a_quarter_of_the_room_and_at_least_a_burst() {
        assert_eq!(opening_max(FLOWS_MAX), FLOWS_MAX / 4);
        assert_eq!(opening_max(1_000), OPENING_MIN);
    }

    #[test]
    fn only_an_acknowledgement_without_syn_or_reset_confirms() {
        for (protocol, flags, confirms) in [
            (TCP, ACK, true),
            (TCP, ACK | 1, true),
            (TCP, SYN, false),
            (TCP, SYN | ACK, false),
            (TCP, RST, false),
            (TCP, RST | ACK, false),
            (TCP, 0, false),
            (SCTP, 1, false),
            (SCTP, 10, true),
            (SCTP, 6, false),
            (UDP, 0, true),
        ] {
            let found = may_confirm(&packet(protocol, flags));
            assert_eq!(found, confirms, "protocol {protocol}, {flags:#x}");
        }
        let later = Packet {
            l4: 0,
            ..packet(UDP, 0)
        };
        assert!(!may_confirm(&later), "a later fragment");
    }

    #[test]
    fn a_client_confirms_by_the_number_that_the_backend_has_sent_it() {
        for sequence in [7, 0x9000_0000, u32::MAX - 1] {
            let open = expected(sequence);
            let confirms = |ahead: u32| {
                is_confirmed(
                    answered(),
                    open,
                    sequence.wrapping_add(ahead).wrapping_add(1),
                )
            };
            assert!(confirms(0) && confirms(1_460), "sequence {sequence}");
            assert!(!confirms(u32::MAX), "the SYN is not acknowledged");
            assert!(!confirms(SENT_AHEAD_MAX));
        }
        assert!(is_confirmed(answered(), 0, 99), "picked up in the middle");
    }

    #[test]
    fn without_an_answer_or_after_a_reset_nothing_confirms() {
        assert!(!is_confirmed(Stage::NEW, 0, 1));
        let refused = Stage::NEW.after_backend(&packet(TCP, RST | ACK));
        assert!(!is_confirmed(refused, 0, 1));
        let again = refused.after_backend(&packet(TCP, SYN | ACK));
        assert!(is_confirmed(again, 0, 1), "its next SYN was accepted");
    }

    #[test]
    fn the_expected_number_lies_above_all_bits_of_a_flow() {
        assert_eq!((COUNTED | LOADED | TAKEN) >> EXPECTED_SHIFT, 0);
        assert_eq!(expected(u32::MAX), 0, "as if none were known");
    }
}

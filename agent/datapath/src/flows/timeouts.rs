//! Timeouts of flows by the state of their connection, after conntrack's; shorter ones in a table that is nearly full.

use dormouse_ebpf::flow::{Flow, FlowKey, OPENING, REVOKED, SERVICE};
use dormouse_ebpf::packet::UDP;
use dormouse_ebpf::stage::{Stage, State, TIME_WAIT_NS, UDP_IDLE_NS};

const SECOND_NS: u64 = 1_000_000_000;

/// kube-proxy's `--conntrack-tcp-timeout-established`.
const ESTABLISHED_NS: u64 = 24 * 60 * 60 * SECOND_NS;
/// kube-proxy's `--conntrack-tcp-timeout-close-wait`: one side may still send.
const CLOSING_NS: u64 = 60 * 60 * SECOND_NS;
/// conntrack's timeout after a SYN.
const OPENING_NS: u64 = 120 * SECOND_NS;
/// conntrack's timeout of UDP that was answered.
const UDP_STREAM_NS: u64 = 120 * SECOND_NS;

/// The same in a table that is nearly full: these flows end before the kernel evicts those of idle connections.
const SCARCE_CLOSING_NS: u64 = 60 * SECOND_NS;
const SCARCE_OPENING_NS: u64 = 10 * SECOND_NS;
const SCARCE_ENDED_NS: u64 = 2 * SECOND_NS;
const SCARCE_UDP_STREAM_NS: u64 = 30 * SECOND_NS;
const SCARCE_UDP_IDLE_NS: u64 = 5 * SECOND_NS;

/// The timeouts in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Of established connections to apps, which must not be kept awake by a connection that lost its client.
    pub(super) idle_ns: u64,
    /// The table is nearly full.
    pub(super) scarce: bool,
}

impl Timeouts {
    /// Whether a connection is over after this silence. `stage` is that of both its entries.
    pub(super) fn are_over(self, key: &FlowKey, flow: &Flow, stage: Stage, silent_ns: u64) -> bool {
        silent_ns > self.of(key, flow, stage)
    }

    /// Whether it may be over: one entry alone does not show that the other side has closed, too.
    pub(super) fn may_be_over(self, key: &FlowKey, flow: &Flow, silent_ns: u64) -> bool {
        let stage = Stage(flow.stage);
        let least = match stage.state() {
            State::Closing => self.ended_ns(),
            _ => self.of(key, flow, stage),
        };
        silent_ns > least
    }

    fn of(self, key: &FlowKey, flow: &Flow, stage: Stage) -> u64 {
        if key.protocol() == UDP {
            return self.udp_ns(stage);
        }
        let service = flow.is(SERVICE);
        match stage.state() {
            _ if flow.is(REVOKED) => self.ended_ns(),
            State::Ended => self.ended_ns(),
            _ if flow.is(OPENING) => self.opening_ns(),
            State::Opening => self.opening_ns(),
            State::Closing if self.scarce => SCARCE_CLOSING_NS,
            State::Closing if service => CLOSING_NS,
            State::Established | State::Unknown if service => ESTABLISHED_NS.max(self.idle_ns),
            State::Closing | State::Established | State::Unknown => self.idle_ns,
        }
    }

    fn udp_ns(self, stage: Stage) -> u64 {
        match (stage.is_replied(), self.scarce) {
            (true, false) => UDP_STREAM_NS,
            (true, true) => SCARCE_UDP_STREAM_NS,
            (false, false) => UDP_IDLE_NS,
            (false, true) => SCARCE_UDP_IDLE_NS,
        }
    }

    /// Also of one whose client has sent a second packet that did not establish it.
    fn opening_ns(self) -> u64 {
        if self.scarce {
            SCARCE_OPENING_NS
        } else {
            OPENING_NS
        }
    }

    fn ended_ns(self) -> u64 {
        if self.scarce {
            SCARCE_ENDED_NS
        } else {
            TIME_WAIT_NS
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ebpf::packet::{Packet, TCP};

    use super::*;

    const SYN: u8 = 0x02;
    const FIN: u8 = 0x11;
    const ACK: u8 = 0x10;
    const MINUTE_NS: u64 = 60 * SECOND_NS;

    fn packet(protocol: u8, flags: u8) -> Packet {
        Packet {
            protocol,
            flags,
            ..Packet::default()
        }
    }

    /// The seconds after which a connection of a Service ends.
    fn seconds(protocol: u8, stage: Stage, scarce: bool) -> u64 {
        let key = FlowKey {
            protocol: protocol.into(),
            ..FlowKey::default()
        };
        let flow = Flow {
            kind: SERVICE,
            ..Flow::default()
        };
        let idle_ns = 10 * MINUTE_NS;
        Timeouts { idle_ns, scarce }.of(&key, &flow, stage) / SECOND_NS
    }

    #[test]
    fn each_state_has_its_timeout_and_only_established_ones_keep_it_in_a_full_table() {
        let client = |stage: Stage, flags| stage.after_client(&packet(TCP, flags));
        let backend = |stage: Stage, flags| stage.after_backend(&packet(TCP, flags));
        let opening = client(Stage::NEW, SYN);
        let open = client(backend(opening, SYN | ACK), ACK);
        let closing = backend(open, FIN);
        let ended = client(closing, FIN);
        for (stage, usual, scarce) in [
            (opening, 120, 10),
            (open, 86_400, 86_400),
            (closing, 3_600, 60),
            (ended, 60, 2),
            (Stage(0), 86_400, 86_400),
        ] {
            assert_eq!(seconds(TCP, stage, false), usual, "{stage:?}");
            assert_eq!(seconds(TCP, stage, true), scarce, "{stage:?}");
        }
        let question = Stage::NEW;
        let answered = question.after_backend(&packet(UDP, 0));
        assert_eq!(
            [false, true].map(|scarce| seconds(UDP, question, scarce)),
            [30, 5]
        );
        assert_eq!(
            [false, true].map(|scarce| seconds(UDP, answered, scarce)),
            [120, 30]
        );
    }

    #[test]
    fn an_unanswered_second_packet_of_a_client_does_not_keep_an_opening_connection() {
        let acknowledged = Stage::NEW.after_client(&packet(TCP, ACK));
        let key = FlowKey {
            protocol: TCP.into(),
            ..FlowKey::default()
        };
        for (kind, seconds) in [(SERVICE | OPENING, 120), (SERVICE, 86_400)] {
            let flow = Flow {
                kind,
                ..Flow::default()
            };
            let timeouts = Timeouts {
                idle_ns: 10 * MINUTE_NS,
                scarce: false,
            };
            let found = timeouts.of(&key, &flow, acknowledged) / SECOND_NS;
            assert_eq!(found, seconds, "{kind:#x}");
        }
    }

    #[test]
    fn established_connections_of_apps_end_when_they_are_idle() {
        let timeouts = Timeouts {
            idle_ns: 10 * MINUTE_NS,
            scarce: false,
        };
        let open = Stage::NEW.after_client(&packet(TCP, ACK));
        let over =
            |silent_ns| timeouts.are_over(&FlowKey::default(), &Flow::default(), open, silent_ns);
        assert!(!over(10 * MINUTE_NS) && over(10 * MINUTE_NS + 1));
    }

    #[test]
    fn a_half_of_a_closed_connection_may_be_over() {
        let timeouts = Timeouts {
            idle_ns: 10 * MINUTE_NS,
            scarce: false,
        };
        let flow = Flow {
            kind: SERVICE,
            stage: Stage::NEW.after_client(&packet(TCP, FIN)).0,
            ..Flow::default()
        };
        let key = FlowKey {
            protocol: TCP.into(),
            ..FlowKey::default()
        };
        assert!(timeouts.may_be_over(&key, &flow, MINUTE_NS + 1));
        assert!(!timeouts.are_over(&key, &flow, Stage(flow.stage), MINUTE_NS + 1));
    }
}

//! Opening connections: in a table of their own until they are established, so that a flood of them evicts no established one.

mod ipv4;

use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Datapath, Hook, Pinned, Verdict};
use dormouse_ebpf::flow::OPENING;
use dormouse_ebpf::packet::{SCTP, UDP};
use dormouse_rig::address::{CLIENT, FAR_POD, POD};
use dormouse_rig::frame::{
    ACK, End, FIN, ICMPV6, MACS, RST, SYN, SYN_ACK, ends, ipv6, seal, sum, tcp, tcp_acknowledging,
};
use dormouse_rig::tcx::DROP;

use super::node::{Node, VIP, VIP_INDEX, given, now_ns, serving, sleeping, with_node};
use super::{HERE, THERE, arrive, open_connections};

/// The pod's end of a connection to the VIP.
const SERVER: End = (POD, 8_000);
const SECOND_NS: u64 = 1_000_000_000;
/// SCTP's chunks (RFC 9260 3.2).
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const COOKIE_ECHO: u8 = 10;

/// Flows that are opening, and established ones.
fn flows(node: &Node) -> (usize, usize) {
    let pinned = Pinned::open(&node.config.bpffs).unwrap();
    let mut count = (0, 0);
    let shown = pinned.flows(|_, flow| {
        if flow.is(OPENING) {
            count.0 += 1;
        } else {
            count.1 += 1;
        }
        true
    });
    shown.unwrap();
    count
}

/// A packet of the pod that leaves by the uplink. Returns the ends that its receiver sees.
fn leave(datapath: &Datapath, frame: &[u8]) -> (End, End) {
    ends(&datapath.programs.run(Hook::UplinkOut, frame).unwrap().frame)
}

fn answer(datapath: &Datapath, flags: u8) -> (End, End) {
    leave(datapath, &tcp(SERVER, HERE, flags))
}

/// The flows to the pod: begun, open.
fn load(datapath: &Datapath) -> (u32, u32) {
    let load = datapath.backend_counts(VIP_INDEX)[0].load;
    (load.flows.begun, load.flows.open())
}

/// Runs a test with an app that the pod serves.
fn with_app(test: impl FnOnce(&Node, &Datapath) + Send + 'static) {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        test(node, &datapath);
    });
}

#[test]
fn a_syn_in_an_established_connection_goes_its_way_and_changes_nothing() {
    with_app(|_, datapath| {
        let ports = 40_000..40_016;
        let send = |port, flags| {
            let here = (CLIENT, port);
            ends(&arrive(datapath, &tcp(here, THERE, flags)).frame).1
        };
        for port in ports.clone() {
            send(port, SYN);
            leave(datapath, &tcp(SERVER, (CLIENT, port), SYN_ACK));
            send(port, ACK);
        }
        let other = Ipv6Addr::from_bits(POD.to_bits() + 1);
        let mut entry = super::node::local_pod();
        entry.address = other;
        datapath.pods.add(entry).unwrap();
        datapath.apps.publish(&serving(&[POD, other])).unwrap();
        let goes_on = |port| [SYN, ACK].map(|flags| send(port, flags)) == [SERVER; 2];
        assert!(ports.clone().all(goes_on));
        assert_eq!(open_connections(datapath), 16);
        let begins_at_other = |port| {
            send(port, FIN);
            send(port, SYN) == (other, 8_000)
        };
        assert!(
            ports.clone().any(begins_at_other),
            "the connections have ended"
        );
    });
}

#[test]
fn a_connection_is_established_with_both_entries_by_the_client_s_acknowledgement() {
    with_app(|node, datapath| {
        let send = |flags| ends(&arrive(datapath, &tcp(HERE, THERE, flags)).frame);
        assert_eq!(send(SYN), (HERE, SERVER));
        assert_eq!(flows(node), (2, 0), "SYN");
        assert_eq!(answer(datapath, SYN_ACK), (THERE, HERE));
        assert_eq!(send(SYN), (HERE, SERVER));
        assert_eq!(answer(datapath, SYN_ACK), (THERE, HERE));
        assert_eq!(flows(node), (2, 0), "SYN-ACK");
        assert_eq!(send(ACK), (HERE, SERVER));
        assert_eq!(flows(node), (0, 2), "ACK");
        assert_eq!((load(datapath), open_connections(datapath)), ((1, 1), 1));
        for _ in 0..2 {
            assert_eq!(send(ACK), (HERE, SERVER), "data");
            assert_eq!(answer(datapath, ACK), (THERE, HERE), "data");
        }
        assert_eq!(flows(node), (0, 2));
        assert_eq!(given(datapath, Verdict::Established), 1);
        assert_eq!(given(datapath, Verdict::ServedLocal), 1);
        assert_eq!(send(FIN), (HERE, SERVER));
        assert_eq!((load(datapath), open_connections(datapath)), ((1, 0), 0));
    });
}

#[test]
fn a_client_that_does_not_know_the_backend_s_sequence_number_establishes_nothing() {
    with_app(|node, datapath| {
        let acknowledge = |number| {
            let frame = tcp_acknowledging(HERE, THERE, ACK, number);
            assert_eq!(ends(&arrive(datapath, &frame).frame), (HERE, SERVER));
        };
        arrive(datapath, &tcp(HERE, THERE, SYN));
        acknowledge(2);
        assert_eq!(flows(node), (2, 0), "before the answer");
        answer(datapath, SYN_ACK);
        for wrong in [0, 1, 1 << 20, 1 << 31] {
            acknowledge(wrong);
            assert_eq!(flows(node), (2, 0), "{wrong}");
        }
        acknowledge(2);
        assert_eq!(flows(node), (0, 2));
    });
}

#[test]
fn a_connection_that_is_reset_while_it_opens_ends_there() {
    with_app(|node, datapath| {
        for (port, by_client) in [(40_000, true), (40_001, false)] {
            let here = (CLIENT, port);
            arrive(datapath, &tcp(here, THERE, SYN));
            if by_client {
                leave(datapath, &tcp(SERVER, here, SYN_ACK));
                arrive(datapath, &tcp(here, THERE, RST));
            } else {
                leave(datapath, &tcp(SERVER, here, RST | ACK));
            }
            arrive(datapath, &tcp(here, THERE, ACK));
        }
        assert_eq!(flows(node), (4, 0));
        assert_eq!((load(datapath), open_connections(datapath)), ((2, 0), 0));
        node.age_flows(61 * SECOND_NS);
        datapath
            .apps
            .expire_idle(now_ns(), 600 * SECOND_NS)
            .unwrap();
        assert_eq!(flows(node), (0, 0));
        // The same ports again: now the pod accepts.
        arrive(datapath, &tcp(HERE, THERE, SYN));
        answer(datapath, RST | ACK);
        arrive(datapath, &tcp(HERE, THERE, SYN));
        answer(datapath, SYN_ACK);
        arrive(datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(flows(node), (0, 2));
    });
}

#[test]
fn a_connection_in_the_middle_is_established_by_the_next_packet_of_each_side() {
    with_app(|node, datapath| {
        arrive(datapath, &tcp(HERE, THERE, ACK));
        arrive(datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(flows(node), (2, 0));
        answer(datapath, ACK);
        assert_eq!(flows(node), (2, 0));
        arrive(datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(flows(node), (0, 2));
        assert_eq!(load(datapath), (1, 1));
    });
}

/// A datagram.
fn udp(source: End, target: End) -> Vec<u8> {
    let [from, to] = [source.1, target.1].map(u16::to_be_bytes);
    let datagram = [&from[..], &to, &[0, 12, 0, 0], b"ping"].concat();
    seal(ipv6(MACS, (UDP, 64), (source.0, target.0), &datagram), 6)
}

#[test]
fn a_udp_flow_is_established_by_the_answer() {
    with_app(|node, datapath| {
        for _ in 0..3 {
            arrive(datapath, &udp(HERE, THERE));
        }
        assert_eq!(flows(node), (2, 0));
        assert_eq!(leave(datapath, &udp(SERVER, HERE)), (THERE, HERE));
        assert_eq!(flows(node), (0, 2));
        assert_eq!(ends(&arrive(datapath, &udp(HERE, THERE)).frame).1, SERVER);
        assert_eq!(load(datapath), (1, 1));
    });
}

/// An SCTP packet with one chunk of this type; no program looks at its checksum.
fn sctp(source: End, target: End, chunk: u8) -> Vec<u8> {
    let [from, to] = [source.1, target.1].map(u16::to_be_bytes);
    let packet = [&from[..], &to, &[0; 8], &[chunk, 0, 0, 20], &[0; 16]].concat();
    ipv6(MACS, (SCTP, 64), (source.0, target.0), &packet)
}

#[test]
fn an_sctp_association_is_established_by_the_client_s_cookie() {
    with_app(|node, datapath| {
        let send = |chunk| {
            let frame = sctp(HERE, THERE, chunk);
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            ends(&run.frame).1
        };
        assert_eq!(send(INIT), SERVER);
        assert_eq!(send(COOKIE_ECHO), SERVER);
        assert_eq!(flows(node), (2, 0), "before the answer");
        leave(datapath, &sctp(SERVER, HERE, INIT_ACK));
        assert_eq!(flows(node), (2, 0), "INIT ACK");
        assert_eq!(send(COOKIE_ECHO), SERVER);
        assert_eq!(flows(node), (0, 2));
    });
}

#[test]
fn a_masqueraded_connection_keeps_its_port_when_it_is_established() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&sleeping()).unwrap();
        let send = |flags| ends(&arrive(&datapath, &tcp(HERE, THERE, flags)).frame);
        let (nat, acting) = send(SYN);
        let reply = |flags| ends(&arrive(&datapath, &tcp(acting, nat, flags)).frame);
        assert_eq!(reply(SYN_ACK), (THERE, HERE));
        assert_eq!(flows(node), (2, 0));
        assert_eq!(send(ACK), (nat, acting));
        assert_eq!(flows(node), (0, 2));
        assert_eq!(reply(ACK), (THERE, HERE));
        assert_eq!(send(ACK), (nat, acting));
    });
}

#[test]
fn a_connection_that_another_node_translates_is_established_by_the_client_s_second_packet() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[FAR_POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(flows(node), (1, 0));
        arrive(&datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(flows(node), (0, 1));
        arrive(&datapath, &udp(HERE, THERE));
        assert_eq!(flows(node), (1, 1));
        arrive(&datapath, &udp(HERE, THERE));
        assert_eq!(flows(node), (0, 2));
    });
}

#[test]
fn an_icmp_error_about_an_opening_connection_is_translated_and_establishes_nothing() {
    with_app(|node, datapath| {
        arrive(datapath, &tcp(HERE, THERE, SYN));
        let failed = tcp(HERE, SERVER, SYN);
        let message = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &failed[14..]].concat();
        let error = seal(ipv6(MACS, (ICMPV6, 64), (POD, CLIENT), &message), 2);
        let run = datapath.programs.run(Hook::UplinkOut, &error).unwrap();
        assert_eq!(sum(&run.frame), 0xffff);
        assert_eq!(run.frame[22..38], VIP.octets());
        assert_eq!(flows(node), (2, 0));
    });
}

#[test]
fn the_ports_of_an_established_connection_begin_another_one() {
    with_app(|node, datapath| {
        let establish = |address: Ipv6Addr| {
            for flags in [SYN, ACK] {
                let run = arrive(datapath, &tcp(HERE, THERE, flags));
                assert_eq!(ends(&run.frame).1, (address, 8_000));
                leave(datapath, &tcp((address, 8_000), HERE, SYN_ACK));
            }
            assert_eq!(
                ends(&arrive(datapath, &tcp(HERE, THERE, ACK)).frame).1.0,
                address
            );
        };
        establish(POD);
        assert_eq!(flows(node), (0, 2));
        // The app has moved to another pod of the node, and the client's next connection has the same port.
        let other = Ipv6Addr::from_bits(POD.to_bits() + 1);
        let mut entry = super::node::local_pod();
        entry.address = other;
        datapath.pods.add(entry).unwrap();
        datapath.apps.publish(&serving(&[other])).unwrap();
        establish(other);
        assert_eq!(open_connections(datapath), 1, "the first one has ended");
        assert_eq!(
            leave(datapath, &tcp((other, 8_000), HERE, ACK)),
            (THERE, HERE)
        );
    });
}

#[test]
fn a_flood_of_syns_evicts_no_established_connection_and_new_ones_succeed() {
    const WAITING: std::ops::Range<u16> = 20_000..20_200;
    const FLOOD: u32 = 20_000;
    with_node(|node| {
        let datapath = node.open_sized(1_000);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let connect = |here: End| {
            arrive(&datapath, &tcp(here, THERE, SYN));
            let greeted = leave(&datapath, &tcp(SERVER, here, SYN_ACK)) == (THERE, here);
            greeted && arrive(&datapath, &tcp(here, THERE, ACK)).verdict != DROP
        };
        let waiting = || WAITING.map(|port| (CLIENT, port));
        assert!(waiting().all(connect));
        let mut refused = 0;
        for number in 1..=FLOOD {
            let forged = Ipv6Addr::from_bits(CLIENT.to_bits() + u128::from(number));
            arrive(&datapath, &tcp((forged, 1_024), THERE, SYN));
            if number % 1_000 == 0 {
                refused += u32::from(!connect((
                    CLIENT,
                    30_000 + u16::try_from(number / 1_000).unwrap(),
                )));
            }
        }
        assert_eq!(refused, 0, "new connections");
        let hung =
            waiting().filter(|here| leave(&datapath, &tcp(SERVER, *here, ACK)) != (THERE, *here));
        assert_eq!(hung.count(), 0, "connections that wait for the pod");
        let (opening, established) = flows(node);
        assert_eq!(established, 2 * (WAITING.len() + 20));
        assert!(opening <= 1_024, "{opening}");
        assert!(!datapath.flow_fill().is_scarce());
        assert!(datapath.opening_fill().is_scarce());
        // What was evicted is no load for ever.
        datapath.apps.expire_idle(0, u64::MAX).unwrap();
        let open = u64::from(load(&datapath).1);
        assert_eq!(open, open_connections(&datapath));
        assert!(open <= 1_024, "{open}");
    });
}

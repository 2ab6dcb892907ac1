//! The programs in the real kernel: BPF test runs over hand-written frames, and the socket hooks in a real cgroup.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; the seed of random packets is printed"
)]

mod beside_proxy;
mod deny;
mod direct;
mod full_table;
mod loads;
mod mutated;
mod nat_ports;
mod node;
mod opening;
mod other_protocols;
mod other_way;
mod packet_log;
mod pod_link;
mod side_by_side;
mod sockets;
mod source_ranges;
mod split;
mod steady;
mod take_over;
mod traffic;
mod wake_limit;
mod xdp;

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener};
use std::process::Stdio;

use dormouse_agent_datapath::{
    Config, Datapath, DatapathError, Entry, Hook, KernelEventKind, KernelEvents, Mode, Run,
    Verdict, detach,
};
use dormouse_ebpf::flow::FLOWS_MAX;
use dormouse_ebpf::maps::FOLLOWED_MAX;
use dormouse_ebpf::stage::TIME_WAIT_NS;
use dormouse_rig::address::{CLIENT, CONTROL, FAR_POD, NODE, POD};
use dormouse_rig::frame::{ACK, End, FIN, MACS, RST, SYN, SYN_ACK, ends, seal, sum, tcp};
use dormouse_rig::pins::rename_to_former_schema;
use dormouse_rig::tcx::{DROP, NEXT, PASS, REDIRECT};
use dormouse_rig::{frame, ip, node::python_in};
use node::{ACTING_FOR_VIP, VIP, VIP_INDEX, events, given, now_ns, serving, sleeping, with_node};

const HERE: End = (CLIENT, 40_000);
const THERE: End = (VIP, 80);
const SLLA: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
/// Longer than the port of any ended connection is kept.
const REST_NS: u64 = TIME_WAIT_NS + TIME_WAIT_NS / 10;
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0x10);

/// A neighbor solicitation from the other end of the uplink.
fn solicitation(source: Ipv6Addr, to: Ipv6Addr, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    frame::solicitation(MACS, (source, to), target, options)
}

fn arrive(datapath: &Datapath, frame: &[u8]) -> Run {
    let run = datapath.programs.run(Hook::UplinkIn, frame).unwrap();
    assert_eq!(sum(&run.frame), 0xffff, "the checksum is right");
    run
}

fn open_connections(datapath: &Datapath) -> u64 {
    datapath
        .apps
        .counts()
        .iter()
        .find(|count| count.vip == VIP_INDEX)
        .map_or(0, |count| count.open)
}

#[test]
fn a_solicitation_for_a_pod_is_answered_on_the_link() {
    with_node(|node| {
        let datapath = node.open();
        for (source, to, options) in [
            (CLIENT, GROUP, &SLLA[..]),
            (CLIENT, POD, &[]),
            (Ipv6Addr::UNSPECIFIED, GROUP, &[]),
            (Ipv6Addr::UNSPECIFIED, GROUP, &[14, 1, 1, 2, 3, 4, 5, 6]),
        ] {
            let run = datapath
                .programs
                .run(Hook::UplinkIn, &solicitation(source, to, POD, options))
                .unwrap();
            assert_eq!((run.verdict, run.frame.len()), (REDIRECT, 86));
            assert_eq!(sum(&run.frame), 0xffff);
            assert_eq!(run.frame[54], 136);
            let solicited = source == CLIENT;
            assert_eq!(run.frame[58], if solicited { 0x60 } else { 0x20 });
            let asker = if solicited {
                CLIENT
            } else {
                "ff02::1".parse().unwrap()
            };
            assert_eq!(run.frame[38..54], asker.octets());
            assert_eq!(run.frame[6..12], run.frame[80..86], "the uplink's address");
        }
        assert_eq!(given(&datapath, Verdict::Advertised), 4);
    });
}

#[test]
fn a_packet_that_is_no_valid_solicitation_for_a_pod_is_left_to_the_kernel() {
    with_node(|node| {
        let datapath = node.open();
        let good = solicitation(CLIENT, GROUP, POD, &SLLA);
        let check = |frame: &[u8]| {
            let run = datapath.programs.run(Hook::UplinkIn, frame).unwrap();
            assert_eq!(run.verdict, NEXT);
            assert_eq!(run.frame, frame, "untouched");
        };
        let no_pod = Ipv6Addr::from_bits(POD.to_bits() + 1);
        check(&solicitation(CLIENT, GROUP, no_pod, &SLLA));
        check(&solicitation(CLIENT, GROUP, FAR_POD, &SLLA));
        check(&solicitation(Ipv6Addr::UNSPECIFIED, GROUP, POD, &SLLA));
        check(&solicitation(GROUP, GROUP, POD, &SLLA));
        check(&solicitation(Ipv6Addr::LOCALHOST, GROUP, POD, &SLLA));
        let spoiled = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        check(&spoiled(57, good[57] ^ 1));
        check(&seal(spoiled(21, 254), 2));
        check(&seal(spoiled(55, 1), 2));
        for len in [54, 77, 85] {
            let run = datapath.programs.run(Hook::UplinkIn, &good[..len]).unwrap();
            assert_eq!(run.verdict, DROP, "malformed");
        }
        assert_eq!(
            given(&datapath, Verdict::Solicited),
            1,
            "inside the prefix, but no pod"
        );
    });
}

#[test]
fn a_solicitation_for_a_removed_pod_is_left_to_the_kernel() {
    with_node(|node| {
        let datapath = node.open();
        let asked = solicitation(CLIENT, GROUP, POD, &SLLA);
        datapath.pods.remove(POD).unwrap();
        datapath.pods.remove(POD).unwrap();
        assert_eq!(
            datapath
                .programs
                .run(Hook::UplinkIn, &asked)
                .unwrap()
                .verdict,
            NEXT
        );
    });
}

#[test]
fn a_vip_without_entry_goes_to_the_activator_and_is_missed_once() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        for _ in 0..3 {
            let run = arrive(&datapath, &tcp(HERE, THERE, SYN));
            assert_eq!(run.verdict, REDIRECT);
            let (source, target) = ends(&run.frame);
            assert_eq!(target, (ACTING_FOR_VIP, 80), "the port is kept");
            assert_eq!(source.0, NODE);
            assert!((10_000..30_000).contains(&source.1) || source.1 >= 61_000);
            assert_eq!(run.frame[21], 63, "one hop less");
        }
        assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Miss)]);
    });
}

#[test]
fn an_icmp_error_is_translated_with_what_it_quotes_unless_that_lies_behind_its_end() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        let failed = tcp(HERE, (POD, 8_000), SYN);
        let message = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &failed[14..]].concat();
        let mut error = seal(
            frame::ipv6(MACS, (frame::ICMPV6, 64), (POD, CLIENT), &message),
            2,
        );
        let leave = |error: &[u8]| datapath.programs.run(Hook::UplinkOut, error).unwrap();
        let translated = leave(&error);
        assert_eq!(sum(&translated.frame), 0xffff);
        assert_eq!(translated.frame[22..38], VIP.octets());
        // It quotes a packet of another source than the one that it goes to.
        let mut stray = error.clone();
        stray[53] ^= 1;
        assert_eq!(leave(&stray).frame, stray);
        // The IP header's length ends before the quoted packet.
        error[18..20].copy_from_slice(&[0, 8]);
        assert_eq!(leave(&error).frame, error);
    });
}

#[test]
fn a_connection_from_a_vip_to_a_vip_is_dropped() {
    with_node(|node| {
        let datapath = node.open();
        let other = Ipv6Addr::from_bits(VIP.to_bits() + 1);
        let run = arrive(&datapath, &tcp((other, 40_000), THERE, SYN));
        assert_eq!(run.verdict, DROP);
        assert_eq!(given(&datapath, Verdict::DroppedMartian), 1);
    });
}

#[test]
fn a_vip_that_is_not_followed_raises_a_miss_again() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        let miss = [(VIP_INDEX, KernelEventKind::Miss)];
        let mut port = 40_000;
        let mut raised = || {
            port += 1;
            arrive(&datapath, &tcp((CLIENT, port), THERE, SYN));
            events(&mut ring)
        };
        assert_eq!((raised(), raised()), (miss.to_vec(), vec![]));
        datapath.apps.expect_misses(&[VIP_INDEX]).unwrap();
        assert_eq!((raised(), raised()), (miss.to_vec(), vec![]));
        let absent = Entry {
            gone: true,
            ..sleeping()
        };
        datapath.apps.publish(&absent).unwrap();
        assert_eq!(raised(), []);
        datapath.apps.expect_misses(&[VIP_INDEX]).unwrap();
        assert_eq!((raised(), raised()), (miss.to_vec(), vec![]));
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.apps.expect_misses(&[VIP_INDEX]).unwrap();
        assert_eq!(
            datapath.apps.followed(),
            [VIP_INDEX],
            "an app's entry stays"
        );
    });
}

#[test]
fn a_vip_is_used_while_a_connection_to_a_pod_is_open() {
    with_node(|node| {
        let datapath = node.open();
        assert!(!datapath.apps.is_used(VIP_INDEX));
        datapath.apps.publish(&serving(&[POD])).unwrap();
        assert!(!datapath.apps.is_used(VIP_INDEX));
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        let flipped = datapath.apps.flip(&[VIP_INDEX], Mode::Proxy);
        assert_eq!(flipped, [VIP_INDEX]);
        assert!(datapath.apps.is_used(VIP_INDEX));
        let again = datapath.apps.flip(&[VIP_INDEX], Mode::Proxy);
        assert!(again.is_empty(), "{again:?}");
    });
}

#[test]
fn a_sleeping_vip_raises_one_event_in_each_sleep() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        for _ in 0..3 {
            datapath.apps.publish(&sleeping()).unwrap();
            arrive(&datapath, &tcp(HERE, THERE, SYN));
            arrive(&datapath, &tcp((CLIENT, 40_001), THERE, SYN));
            datapath.apps.publish(&sleeping()).unwrap();
            arrive(&datapath, &tcp((CLIENT, 40_002), THERE, SYN));
            assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Wake)]);
            datapath.apps.publish(&serving(&[POD])).unwrap();
            arrive(&datapath, &tcp((CLIENT, 40_003), THERE, SYN));
            assert_eq!(events(&mut ring), []);
        }
    });
}

#[test]
fn only_packets_to_the_port_and_protocol_of_a_sleeping_app_raise_an_event() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        let raised = |ring: &mut KernelEvents| {
            std::iter::from_fn(|| ring.try_next())
                .map(|event| (event.kind, event.port, event.protocol))
                .collect::<Vec<_>>()
        };
        arrive(&datapath, &tcp(HERE, (VIP, 81), SYN));
        assert_eq!(
            raised(&mut ring),
            [(KernelEventKind::Miss, 81, 6)],
            "control decides for a VIP without an entry"
        );
        datapath.apps.publish(&sleeping()).unwrap();
        arrive(&datapath, &tcp((CLIENT, 40_001), (VIP, 81), SYN));
        // Source port 40002, destination port 80, length 12, checksum, 4 bytes.
        let datagram = [0x9c, 0x42, 0, 80, 0, 12, 0, 0, b'p', b'i', b'n', b'g'];
        let datagram = frame::ipv6(MACS, (17, 64), (CLIENT, VIP), &datagram);
        arrive(&datapath, &seal(datagram, 6));
        assert_eq!(raised(&mut ring), []);
        arrive(&datapath, &tcp((CLIENT, 40_003), THERE, SYN));
        assert_eq!(raised(&mut ring), [(KernelEventKind::Wake, 80, 6)]);
    });
}

#[test]
fn the_activators_reply_comes_back_from_the_vip() {
    with_node(|node| {
        let datapath = node.open();
        let (nat, acting) = ends(&arrive(&datapath, &tcp(HERE, THERE, SYN)).frame);
        let (again, _) = ends(&arrive(&datapath, &tcp(HERE, THERE, SYN)).frame);
        assert_eq!(again, nat, "a repeated SYN keeps its port");
        let run = arrive(&datapath, &tcp(acting, nat, SYN_ACK));
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(ends(&run.frame), (THERE, HERE));
        let stranger = tcp(acting, (NODE, nat.1 ^ 1), SYN_ACK);
        assert_eq!(arrive(&datapath, &stranger).verdict, NEXT, "not of ours");
    });
}

#[test]
fn ports_towards_the_activator_are_used_again_once_their_connections_have_ended() {
    with_node(|node| {
        let datapath = node.open();
        // More connections than there are ports, each ended by one of the ways in which a connection ends.
        for client_port in 10_000..40_000 {
            if client_port % 10_000 == 0 {
                node.age_flows(REST_NS);
            }
            let here = (CLIENT, client_port);
            let run = arrive(&datapath, &tcp(here, THERE, SYN));
            assert_eq!(run.verdict, REDIRECT, "connection from port {client_port}");
            let (nat, acting) = ends(&run.frame);
            arrive(&datapath, &tcp(here, THERE, ACK));
            if client_port % 2 == 0 {
                arrive(&datapath, &tcp(acting, nat, FIN));
            } else {
                arrive(&datapath, &tcp(here, THERE, RST));
            }
        }
        assert_eq!(given(&datapath, Verdict::DroppedNoPort), 0);
    });
}

#[test]
fn the_port_of_an_established_connection_is_no_other_connections() {
    with_node(|node| {
        let datapath = node.open();
        let (nat, acting) = ends(&arrive(&datapath, &tcp(HERE, THERE, SYN)).frame);
        arrive(&datapath, &tcp(acting, nat, SYN_ACK));
        arrive(&datapath, &tcp(HERE, THERE, ACK));
        for client_port in 10_000..40_000 {
            if client_port % 10_000 == 0 {
                node.age_flows(REST_NS);
            }
            let here = (CLIENT, client_port);
            let (other, _) = ends(&arrive(&datapath, &tcp(here, THERE, SYN)).frame);
            assert_ne!(other, nat);
            arrive(&datapath, &tcp(here, THERE, RST));
        }
        let run = arrive(&datapath, &tcp(acting, nat, ACK));
        assert_eq!(ends(&run.frame), (THERE, HERE));
        assert_eq!(
            ends(&arrive(&datapath, &tcp(HERE, THERE, ACK)).frame).0,
            nat
        );
    });
}

#[test]
fn the_end_of_an_unknown_connection_wakes_no_app() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        datapath.apps.publish(&sleeping()).unwrap();
        for flags in [FIN, RST, ACK] {
            arrive(&datapath, &tcp(HERE, THERE, flags));
        }
        assert_eq!(events(&mut ring), []);
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Wake)]);
    });
}

#[test]
fn connections_that_a_full_table_evicted_keep_no_app_awake() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let clients = (0..10).map(|n| Ipv6Addr::from_bits(CLIENT.to_bits() + n));
        for client in clients {
            for port in 10_000..30_000 {
                let run = datapath
                    .programs
                    .run(Hook::UplinkIn, &tcp((client, port), THERE, SYN));
                assert_eq!(run.unwrap().verdict, PASS);
            }
        }
        assert_eq!(open_connections(&datapath), 200_000);
        let flows = |datapath: &Datapath| datapath.backend_counts(VIP_INDEX)[0].load.flows;
        assert_eq!(flows(&datapath).open(), 200_000);
        datapath.apps.expire_idle(0, 0).unwrap();
        let open = open_connections(&datapath);
        assert!(
            open <= u64::from(FLOWS_MAX),
            "{open} are open, more than the table holds"
        );
        assert_eq!(u64::from(flows(&datapath).open()), open);
        datapath.apps.expire_idle(u64::MAX / 2, 0).unwrap();
        assert_eq!(open_connections(&datapath), 0);
        assert_eq!(
            (flows(&datapath).begun, flows(&datapath).open()),
            (200_000, 0)
        );
    });
}

#[test]
fn a_served_vip_is_translated_to_the_pod_and_back() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let run = arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(run.verdict, PASS);
        assert_eq!(
            ends(&run.frame),
            (HERE, (POD, 8000)),
            "the client's address is kept"
        );
        let back = datapath
            .programs
            .run(Hook::UplinkOut, &tcp((POD, 8000), HERE, SYN_ACK))
            .unwrap();
        assert_eq!(back.verdict, NEXT);
        assert_eq!(ends(&back.frame), (THERE, HERE));
        assert_eq!(sum(&back.frame), 0xffff);
        let other = tcp((POD, 9000), HERE, ACK);
        assert_eq!(
            datapath
                .programs
                .run(Hook::UplinkOut, &other)
                .unwrap()
                .frame,
            other,
            "the pod's own traffic"
        );
    });
}

#[test]
fn a_connection_is_counted_once_and_ends_with_the_first_fin_of_either_side() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        arrive(&datapath, &tcp((CLIENT, 40_001), THERE, SYN));
        let counts = datapath.apps.counts();
        assert_eq!(
            (counts[0].vip, counts[0].connections, counts[0].open),
            (VIP_INDEX, 2, 2)
        );
        assert!(counts[0].connection_ns <= 2 * counts[0].interval_ns);
        arrive(&datapath, &tcp(HERE, THERE, FIN));
        datapath
            .programs
            .run(Hook::UplinkOut, &tcp((POD, 8000), HERE, FIN))
            .unwrap();
        assert_eq!(open_connections(&datapath), 1);
        datapath
            .programs
            .run(Hook::UplinkOut, &tcp((POD, 8000), (CLIENT, 40_001), FIN))
            .unwrap();
        assert_eq!(open_connections(&datapath), 0);
    });
}

#[test]
fn a_client_that_vanished_is_counted_as_gone_once_it_is_idle() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(open_connections(&datapath), 1);
        assert_eq!(
            datapath.apps.expire_idle(0, 0).unwrap(),
            0,
            "seen after that"
        );
        assert_eq!(
            datapath
                .apps
                .expire_idle(u64::MAX / 2, 1_000_000_000)
                .unwrap(),
            2,
            "both directions"
        );
        assert_eq!(open_connections(&datapath), 0);
    });
}

#[test]
fn a_backend_of_another_node_gets_the_packet_untranslated() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[FAR_POD])).unwrap();
        let frame = tcp(HERE, THERE, SYN);
        let run = arrive(&datapath, &frame);
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame[21], 63);
        assert_eq!(run.frame[22..], frame[22..], "all but the hop limit");
        assert_eq!(
            open_connections(&datapath),
            0,
            "counted where the backend is"
        );
        let mut last_hop = frame;
        last_hop[21] = 1;
        assert_eq!(arrive(&datapath, &last_hop).verdict, DROP);
        assert_eq!(given(&datapath, Verdict::DroppedHops), 1);
    });
}

#[test]
fn an_established_flow_stays_when_the_entry_changes_and_a_new_one_does_not() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        datapath.apps.publish(&sleeping()).unwrap();
        assert_eq!(
            ends(&arrive(&datapath, &tcp(HERE, THERE, ACK)).frame).1,
            (POD, 8000)
        );
        assert_eq!(
            ends(&arrive(&datapath, &tcp(HERE, THERE, SYN)).frame).1,
            (ACTING_FOR_VIP, 80)
        );
        assert_eq!(
            open_connections(&datapath),
            0,
            "the SYN ended the connection before"
        );
    });
}

#[test]
fn an_entry_whose_lease_is_over_is_used_while_neither_control_nor_an_activator_answers() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.apps.grant(1);
        let target = |port| {
            let frame = arrive(&datapath, &tcp((CLIENT, port), THERE, SYN)).frame;
            ends(&frame).1
        };
        datapath.apps.use_stale(true).unwrap();
        assert!(datapath.apps.is_stale());
        assert_eq!(target(40_001), (POD, 8000));
        datapath.apps.use_stale(false).unwrap();
        assert_eq!(target(40_002), (ACTING_FOR_VIP, 80));
        datapath.apps.use_stale(true).unwrap();
        datapath.apps.grant(2);
        assert!(!datapath.apps.is_stale(), "a grant ends it");
        assert_eq!(target(40_003), (ACTING_FOR_VIP, 80));
        datapath.apps.use_stale(true).unwrap();
        datapath.apps.withdraw(POD).unwrap();
        assert_eq!(target(40_004), (ACTING_FOR_VIP, 80), "the pod has ended");
    });
}

#[test]
fn past_the_node_lease_the_kernel_alone_sends_leased_apps_to_the_activator() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.apps.grant(1);
        let target = |datapath: &Datapath| ends(&arrive(datapath, &tcp(HERE, THERE, SYN)).frame).1;
        assert_eq!(target(&datapath), (ACTING_FOR_VIP, 80));
        assert_eq!(given(&datapath, Verdict::LeaseOver), 1);
        datapath
            .apps
            .publish(&Entry {
                leased: false,
                ..serving(&[POD])
            })
            .unwrap();
        assert_eq!(
            target(&datapath),
            (POD, 8000),
            "an entry without the lease bit goes on"
        );
    });
}

#[test]
fn a_port_that_the_vip_does_not_have_wakes_no_app() {
    with_node(|node| {
        let datapath = node.open();
        let mut ring = datapath.take_events().unwrap();
        datapath.apps.publish(&sleeping()).unwrap();
        let run = arrive(&datapath, &tcp(HERE, (VIP, 81), SYN));
        assert_eq!(ends(&run.frame).1, (ACTING_FOR_VIP, 81));
        assert_eq!(events(&mut ring), []);
    });
}

#[test]
fn a_backend_whose_pod_is_gone_gets_no_packets() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        datapath.pods.remove(POD).unwrap();
        assert_eq!(
            ends(&arrive(&datapath, &tcp(HERE, THERE, ACK)).frame).1,
            (ACTING_FOR_VIP, 80)
        );
    });
}

#[test]
fn connections_spread_over_the_backends_and_every_node_picks_the_same() {
    with_node(|node| {
        let datapath = node.open();
        let pods: Vec<Ipv6Addr> = (0..5)
            .map(|n| Ipv6Addr::from_bits(FAR_POD.to_bits() + n))
            .collect();
        let mut all = pods.clone();
        all.push(POD);
        datapath.apps.publish(&serving(&all)).unwrap();
        let local = (0..300)
            .filter(|port| {
                arrive(&datapath, &tcp((CLIENT, 10_000 + port), THERE, SYN)).verdict == PASS
            })
            .count();
        assert!(
            (20..90).contains(&local),
            "{local} of 300 for one backend of six"
        );
        // By the flow, not by order or ids: published again in another order, the choice is the same.
        datapath.apps.publish(&serving(&pods)).unwrap();
        all.rotate_left(3);
        datapath.apps.publish(&serving(&all)).unwrap();
        let again = (0..300)
            .filter(|port| {
                arrive(&datapath, &tcp((CLIENT, 10_000 + port), THERE, SYN)).verdict == PASS
            })
            .count();
        assert_eq!(again, local);
    });
}

#[test]
fn traffic_that_is_for_no_vip_is_not_touched() {
    with_node(|node| {
        let datapath = node.open();
        for frame in [
            tcp(HERE, (POD, 80), SYN),
            tcp(HERE, (CONTROL, 80), SYN),
            solicitation(CLIENT, GROUP, VIP, &SLLA),
        ] {
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            assert_eq!((run.verdict, run.frame), (NEXT, frame));
        }
    });
}

#[test]
fn the_next_agent_takes_over_maps_links_and_flows() {
    with_node(|node| {
        let first = node.open();
        first.apps.publish(&serving(&[POD])).unwrap();
        first
            .apps
            .publish(&Entry {
                vip: 9,
                ..sleeping()
            })
            .unwrap();
        arrive(&first, &tcp(HERE, THERE, SYN));
        drop(first);
        let links = node.links();
        assert_eq!(links.len(), 12, "attached without an agent: {links:?}");
        let second = Datapath::open(node.config.clone()).unwrap();
        assert_eq!(second.apps.followed(), [VIP_INDEX, 9]);
        assert_eq!(
            second.pods.addresses().unwrap(),
            std::collections::BTreeSet::from([POD])
        );
        let run = arrive(&second, &tcp(HERE, THERE, ACK));
        assert_eq!(
            ends(&run.frame).1,
            (POD, 8000),
            "the flow goes on, with ranges as they were"
        );
        assert_eq!(open_connections(&second), 1);
        for ((pin, before), (_, after)) in links.iter().zip(node.links()) {
            assert_eq!(before.link, after.link, "{pin}: never detached");
            assert_ne!(before.program, after.program, "{pin}: of the new agent");
        }
        second.apps.publish(&sleeping()).unwrap();
        let run = arrive(&second, &tcp((CLIENT, 40_009), THERE, SYN));
        assert_eq!(ends(&run.frame).1, (ACTING_FOR_VIP, 80));
    });
}

#[test]
fn another_uplink_is_attached_to_and_the_previous_one_detached() {
    with_node(|node| {
        drop(node.open());
        let before = node.links();
        ip("link add up1 type veth peer name peer1");
        let config = Config {
            uplink: "up1".to_owned(),
            ..node.config.clone()
        };
        let _second = Datapath::open(config).unwrap();
        for ((pin, before), (_, after)) in before.iter().zip(node.links()) {
            let stays = pin.contains("link_cg_");
            assert_eq!(before.link == after.link, stays, "{pin}");
        }
    });
}

#[test]
fn a_data_path_has_one_agent_and_is_not_detached_while_that_runs() {
    with_node(|node| {
        let first = node.open();
        let second = Datapath::open(node.config.clone());
        assert!(matches!(second, Err(DatapathError::InUse { .. })));
        let taken = detach(&node.config.bpffs);
        assert!(matches!(taken, Err(DatapathError::InUse { .. })));
        assert_eq!(node.links().len(), 12);
        drop(first);
        detach(&node.config.bpffs).unwrap();
        detach(&node.config.bpffs).unwrap();
        assert!(!node.config.bpffs.exists());
    });
}

#[test]
fn a_folder_that_holds_no_pins_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let refused = detach(folder.path());
    assert!(matches!(refused, Err(DatapathError::NoPins { .. })));
    assert!(folder.path().exists());
}

#[test]
fn nothing_is_created_where_uplink_or_cgroup_do_not_exist() {
    with_node(|node| {
        let no_uplink = Config {
            uplink: "up9".to_owned(),
            ..node.config.clone()
        };
        let error = Datapath::open(no_uplink).unwrap_err().to_string();
        assert!(error.contains("up9") && error.contains("--uplink"));
        let no_cgroup = Config {
            cgroup: "/proc".into(),
            ..node.config.clone()
        };
        let error = Datapath::open(no_cgroup).unwrap_err().to_string();
        assert!(error.contains("/proc"), "{error}");
        assert!(!node.config.bpffs.exists());
    });
}

#[test]
fn a_lease_without_end_ends_with_the_agent_that_had_no_control() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.apps.expect_grants();
        let run = arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(ends(&run.frame).1, (ACTING_FOR_VIP, 80));
        datapath.apps.grant(now_ns() + 60_000_000_000);
        datapath.apps.expect_grants();
        let run = arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(ends(&run.frame).1, (POD, 8000), "a lease with an end holds");
    });
}

#[test]
fn a_vip_that_is_not_served_takes_no_counters() {
    with_node(|node| {
        let datapath = node.open();
        for vip in 0..=FOLLOWED_MAX {
            let unknown = Entry {
                vip,
                gone: true,
                ..sleeping()
            };
            datapath.apps.publish(&unknown).unwrap();
        }
        datapath.apps.publish(&serving(&[POD])).unwrap();
        arrive(&datapath, &tcp(HERE, THERE, SYN));
        assert_eq!(open_connections(&datapath), 1);
        datapath.apps.publish(&sleeping()).unwrap();
        drop(datapath);
        let second = node.open();
        assert_eq!(open_connections(&second), 1, "still open, asleep or not");
    });
}

#[test]
fn an_event_that_the_previous_agent_did_not_report_is_raised_again() {
    with_node(|node| {
        let first = node.open();
        first.apps.publish(&sleeping()).unwrap();
        let mut ring = first.take_events().unwrap();
        arrive(&first, &tcp(HERE, THERE, SYN));
        assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Wake)]);
        drop((first, ring));
        let second = node.open();
        let mut ring = second.take_events().unwrap();
        assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Wake)]);
        assert!(second.take_events().is_err(), "events have one reader");
    });
}

/// Runs a Python program in the node's cgroup and this thread's network namespace.
fn in_pod(node: &node::Node, program: &str) -> std::process::Child {
    python_in(&node.config.cgroup, program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh and python3 are installed")
}

#[test]
fn a_pods_process_is_connected_to_a_backend_and_sees_the_vip_as_its_peer() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let listener = TcpListener::bind((POD, 8000)).unwrap();
        let mut pod = in_pod(
            node,
            "import socket, sys\ns = socket.create_connection(('fd00:10::7', 80))\nprint(*s.getpeername()[:2])\nsys.stdin.read()",
        );
        let (_stream, _) = listener.accept().unwrap();
        let mut said = vec![0; "fd00:10::7 80".len()];
        pod.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "fd00:10::7 80");
        assert_eq!(open_connections(&datapath), 1);
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
        assert_eq!(open_connections(&datapath), 0);
        assert_eq!(given(&datapath, Verdict::SocketServed), 1);
    });
}

#[test]
fn a_pods_datagram_to_a_sleeping_vip_goes_to_the_activator_and_the_answer_comes_from_the_vip() {
    with_node(|node| {
        ip(&format!("addr add {ACTING_FOR_VIP}/128 dev lo nodad"));
        let datapath = node.open();
        let app = Entry {
            protocol: 17,
            ..sleeping()
        };
        datapath.apps.publish(&app).unwrap();
        let mut ring = datapath.take_events().unwrap();
        let activator = std::net::UdpSocket::bind((ACTING_FOR_VIP, 80)).unwrap();
        let mut pod = in_pod(
            node,
            "import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.sendto(b'ask', ('fd00:10::7', 80))\ndata, peer = s.recvfrom(10)\nprint(data.decode(), *peer[:2])",
        );
        let mut asked = [0; 10];
        let (len, from) = activator.recv_from(&mut asked).unwrap();
        assert_eq!(&asked[..len], b"ask");
        activator.send_to(b"answer", from).unwrap();
        let mut said = String::new();
        pod.stdout
            .as_mut()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "answer fd00:10::7 80\n");
        assert!(pod.wait().unwrap().success());
        assert_eq!(events(&mut ring), [(VIP_INDEX, KernelEventKind::Wake)]);
    });
}

#[test]
fn a_process_outside_the_cgroup_and_an_address_outside_the_ranges_are_left_alone() {
    with_node(|node| {
        ip(&format!("addr add {POD}/128 dev lo nodad"));
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let listener = TcpListener::bind((POD, 80)).unwrap();
        let mut pod = in_pod(
            node,
            &format!("import socket\nsocket.create_connection(('{POD}', 80)).send(b'x')"),
        );
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(b"y").unwrap_or(());
        assert!(pod.wait().unwrap().success());
        assert!(
            std::net::TcpStream::connect((VIP, 80)).is_err(),
            "no route, and no hook outside the cgroup"
        );
        assert_eq!(open_connections(&datapath), 0);
    });
}

#[test]
fn a_data_path_of_another_layout_is_taken_over_with_its_connections() {
    with_node(|node| {
        let before = node.open_sized(FLOWS_MAX / 2);
        before.apps.publish(&serving(&[POD])).unwrap();
        arrive(&before, &tcp(HERE, THERE, SYN));
        before.apps.publish(&sleeping()).unwrap();
        drop(before);

        let after = Datapath::open(node.config.clone()).unwrap();
        let kept = arrive(&after, &tcp(HERE, THERE, ACK));
        assert_eq!(ends(&kept.frame).1, (POD, 8000), "the flow was copied");
        let new = arrive(&after, &tcp((CLIENT, 40_001), THERE, SYN));
        assert_eq!(ends(&new.frame).1, (ACTING_FOR_VIP, 80), "so was the entry");
        assert_eq!(after.apps.followed(), [VIP_INDEX]);
        let folders = std::fs::read_dir(&node.config.bpffs).unwrap().count();
        assert_eq!(folders, 1, "the old layout is gone");
        assert_eq!(node.links().len(), 12, "and all links stay");
    });
}

#[test]
fn a_data_path_of_the_former_schema_is_taken_over_with_its_connections() {
    with_node(|node| {
        let before = node.open();
        before.apps.publish(&serving(&[POD])).unwrap();
        arrive(&before, &tcp(HERE, THERE, SYN));
        before.apps.publish(&sleeping()).unwrap();
        drop(before);
        rename_to_former_schema(&node.config.bpffs);

        let after = Datapath::open(node.config.clone()).unwrap();
        let known = arrive(&after, &tcp(HERE, THERE, ACK));
        assert_eq!(ends(&known.frame).1, (POD, 8000), "the flow was copied");
        let new = arrive(&after, &tcp((CLIENT, 40_001), THERE, SYN));
        assert_eq!(ends(&new.frame).1, (ACTING_FOR_VIP, 80), "so was the entry");
        assert_eq!(after.apps.followed(), [VIP_INDEX]);
        let folders: Vec<_> = std::fs::read_dir(&node.config.bpffs)
            .unwrap()
            .map(|folder| folder.unwrap().file_name())
            .collect();
        assert_eq!(folders, ["v6"], "the former schema is gone");
        assert_eq!(node.links().len(), 12, "and all links stay");
    });
}

#[test]
fn a_take_over_that_was_cut_off_is_finished_by_the_next() {
    with_node(|node| {
        let pins = &node.config.bpffs;
        let oldest = node.open_sized(FLOWS_MAX / 2);
        oldest.apps.publish(&serving(&[POD])).unwrap();
        arrive(&oldest, &tcp(HERE, THERE, SYN));
        drop(oldest);
        // Two data paths at once, as an agent leaves them that dies while it takes over.
        let aside = pins.with_file_name(format!("aside-{}", std::process::id()));
        std::fs::rename(pins, &aside).unwrap();
        node.open().apps.publish(&sleeping()).unwrap();
        for folder in std::fs::read_dir(&aside).unwrap() {
            let name = folder.unwrap().file_name();
            std::fs::rename(aside.join(&name), pins.join(&name)).unwrap();
        }
        std::fs::remove_dir(&aside).unwrap();

        let after = Datapath::open(node.config.clone()).unwrap();
        let new = arrive(&after, &tcp((CLIENT, 40_001), THERE, SYN));
        assert_eq!(ends(&new.frame).1, (ACTING_FOR_VIP, 80), "the later entry");
        let folders = std::fs::read_dir(pins).unwrap().count();
        assert_eq!(folders, 1, "one layout is left");
        assert_eq!(node.links().len(), 12);
        let mut flows = 0;
        let pinned = dormouse_agent_datapath::Pinned::open(pins).unwrap();
        pinned
            .flows(|_, _| {
                flows += 1;
                true
            })
            .unwrap();
        assert_eq!(flows, 4, "the first connection, and the one just now");
    });
}

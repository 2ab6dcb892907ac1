//! A flow table that is full: a connection has the entries of both directions or none, and ended connections leave first.

use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Datapath, Hook, Pinned, Verdict};
use dormouse_ebpf::found::WHILE_BITS;
use dormouse_rig::address::{CLIENT, POD};
use dormouse_rig::frame::{ACK, End, FIN, PSH, RST, SYN, SYN_ACK, ends, tcp};
use dormouse_rig::tcx::DROP;

use super::node::{Node, given, now_ns, pass_ticks, serving, sleeping, with_node};
use super::{THERE, arrive};

/// A small table, so that it is full soon.
const ROOM: u32 = 8_192;
/// A table that connections in use fill almost, and their ports; and the ports of new ones.
const TIGHT: u32 = 1_024;
const USED: std::ops::Range<u16> = 20_000..20_490;
const NEW: std::ops::Range<u16> = 30_000..32_000;
/// Ports of clients: more connections than the table has room for.
const PORTS: std::ops::Range<u16> = 10_000..30_000;
/// The pod's end of a connection to the VIP.
const SERVER: End = (POD, 8000);
/// The timeout of idle connections to apps.
const IDLE_NS: u64 = 600 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// Longer than the resolution of an entry's last packet.
const LONG_NS: u64 = 2 * SECOND_NS;

/// What the pod sends to a client.
fn reply(datapath: &Datapath, here: End, flags: u8) -> (End, End) {
    let frame = tcp(SERVER, here, flags);
    ends(
        &datapath
            .programs
            .run(Hook::UplinkOut, &frame)
            .unwrap()
            .frame,
    )
}

/// Flows in the table.
fn flows(node: &Node) -> usize {
    let mut count = 0;
    let pinned = Pinned::open(&node.config.bpffs).unwrap();
    pinned
        .flows(|_, _| {
            count += 1;
            true
        })
        .unwrap();
    count
}

/// Evicts the entry with this source alone; the last packet of the others was so long ago.
fn evict_of(node: &Node, source: Ipv6Addr, silent_ns: u64) {
    node.change_flows(|key, flow| {
        (key.source != source.octets()).then(|| dormouse_ebpf::flow::Flow {
            seen_ns: flow.seen_ns - silent_ns,
            ..*flow
        })
    });
    // The programs look for both entries of a connection once in a while.
    pass_ticks(1 << WHILE_BITS);
}

/// Establishes a connection.
fn establish(datapath: &Datapath, here: End) {
    arrive(datapath, &tcp(here, THERE, SYN));
    reply(datapath, here, SYN_ACK);
    arrive(datapath, &tcp(here, THERE, ACK));
}

/// A connection that both sides close.
fn closed(datapath: &Datapath, here: End) {
    establish(datapath, here);
    reply(datapath, here, FIN);
    arrive(datapath, &tcp(here, THERE, FIN));
}

#[test]
fn replies_of_new_connections_are_translated_although_the_table_is_full() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let lost = PORTS.filter(|port| {
            let here = (CLIENT, *port);
            arrive(&datapath, &tcp(here, THERE, SYN));
            reply(&datapath, here, SYN_ACK) != (THERE, here)
        });
        assert_eq!(lost.count(), 0);
        assert_eq!(given(&datapath, Verdict::TableFull), 0);
    });
}

#[test]
fn a_new_connection_has_both_entries_or_none_while_all_others_are_in_use() {
    with_node(|node| {
        let datapath = node.open_sized(TIGHT);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let uses = |here| {
            arrive(&datapath, &tcp(here, THERE, ACK));
            reply(&datapath, here, ACK);
        };
        let in_use = || USED.map(|port| (CLIENT, port));
        let connects = |here| {
            let passes = arrive(&datapath, &tcp(here, THERE, SYN)).verdict != DROP;
            passes && reply(&datapath, here, SYN_ACK) == (THERE, here)
        };
        for here in in_use() {
            assert!(connects(here));
            uses(here);
        }
        // Room is made of entries that no packet has used: of the first one of a new connection, while its second is inserted.
        let half = NEW.filter(|port| {
            if port % 50 == 0 {
                in_use().for_each(uses);
            }
            let here = (CLIENT, *port);
            if !connects(here) {
                return true;
            }
            let (_, server) = ends(&arrive(&datapath, &tcp(here, THERE, ACK)).frame);
            server != SERVER || reply(&datapath, here, ACK) != (THERE, here)
        });
        assert_eq!(half.count(), 0);
    });
}

#[test]
fn replies_to_nat_ports_are_translated_although_the_table_is_full() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&sleeping()).unwrap();
        let lost = PORTS.filter(|port| {
            let here = (CLIENT, *port);
            let (nat, acting) = ends(&arrive(&datapath, &tcp(here, THERE, SYN)).frame);
            let back = arrive(&datapath, &tcp(acting, nat, SYN_ACK));
            arrive(&datapath, &tcp(here, THERE, RST));
            ends(&back.frame) != (THERE, here)
        });
        assert_eq!(lost.count(), 0);
    });
}

#[test]
fn the_replies_of_a_client_that_only_sends_stay_translated() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let here = (CLIENT, 9_000);
        establish(&datapath, here);
        let before = flows(node);
        // Its reply entry is evicted alone, as the one that no packet uses.
        evict_of(node, POD, LONG_NS);
        assert_eq!(flows(node), before - 1);
        arrive(&datapath, &tcp(here, THERE, ACK));
        assert_eq!(reply(&datapath, here, ACK), (THERE, here));
    });
}

#[test]
fn a_request_restores_the_entry_of_its_answer_and_an_answer_that_of_the_next_request() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let here = (CLIENT, 9_000);
        establish(&datapath, here);
        let before = flows(node);
        let evict_now = |source: Ipv6Addr| {
            evict_of(node, source, 0);
            assert_eq!(flows(node), before - 1);
        };
        evict_now(POD);
        arrive(&datapath, &tcp(here, THERE, PSH));
        assert_eq!(flows(node), before);
        assert_eq!(reply(&datapath, here, ACK), (THERE, here));
        evict_now(CLIENT);
        assert_eq!(reply(&datapath, here, PSH), (THERE, here));
        assert_eq!(flows(node), before);
    });
}

#[test]
fn a_masqueraded_connection_keeps_its_port_if_either_entry_is_evicted() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&sleeping()).unwrap();
        let here = (CLIENT, 9_000);
        let sent = |flags| ends(&arrive(&datapath, &tcp(here, THERE, flags)).frame);
        let (nat, acting) = sent(SYN);
        let replied = |flags| ends(&arrive(&datapath, &tcp(acting, nat, flags)).frame);
        assert_eq!(replied(SYN_ACK), (THERE, here));
        assert_eq!(sent(ACK), (nat, acting));
        let before = flows(node);

        evict_of(node, acting.0, LONG_NS);
        assert_eq!(flows(node), before - 1);
        assert_eq!(sent(ACK), (nat, acting), "without the reply entry");
        assert_eq!(replied(ACK), (THERE, here));

        evict_of(node, here.0, LONG_NS);
        assert_eq!(flows(node), before - 1);
        assert_eq!(replied(ACK), (THERE, here), "without the client's entry");
        assert_eq!(sent(ACK), (nat, acting));
        assert_eq!(flows(node), before);
    });
}

#[test]
fn a_connection_whose_client_entry_is_evicted_has_it_again_after_a_reply() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let here = (CLIENT, 9_000);
        establish(&datapath, here);
        let before = flows(node);
        evict_of(node, CLIENT, LONG_NS);
        assert_eq!(flows(node), before - 1);
        assert_eq!(reply(&datapath, here, ACK), (THERE, here));
        assert_eq!(flows(node), before);
        arrive(&datapath, &tcp(here, THERE, ACK));
        assert_eq!(
            given(&datapath, Verdict::ServedLocal),
            1,
            "no other one began"
        );
    });
}

#[test]
fn ended_connections_leave_within_minutes_and_established_ones_stay() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let [opening, established, half, ended, reset] =
            [1, 2, 3, 4, 5].map(|port| (CLIENT, 40_000 + port));
        arrive(&datapath, &tcp(opening, THERE, SYN));
        for here in [established, half, reset] {
            establish(&datapath, here);
        }
        reply(&datapath, half, FIN);
        reply(&datapath, reset, RST);
        closed(&datapath, ended);
        let now_ns = now_ns();
        let left_after = |seconds: u64| {
            let later_ns = now_ns + seconds * SECOND_NS;
            datapath.apps.expire_idle(later_ns, IDLE_NS).unwrap();
            flows(node)
        };
        assert_eq!(left_after(58), 10, "TIME_WAIT is not over");
        assert_eq!(left_after(62), 6, "closed by both, and reset");
        assert_eq!(left_after(122), 4, "never established");
        assert_eq!(left_after(598), 4);
        assert_eq!(
            left_after(602),
            0,
            "an app's connection that lost its client"
        );
    });
}

#[test]
fn a_table_that_is_nearly_full_is_swept_at_once_of_all_but_established_connections() {
    with_node(|node| {
        let datapath = node.open_sized(ROOM);
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let established: Vec<End> = (0..100).map(|port| (CLIENT, 9_000 + port)).collect();
        for here in &established {
            arrive(&datapath, &tcp(*here, THERE, SYN));
            reply(&datapath, *here, SYN_ACK);
            arrive(&datapath, &tcp(*here, THERE, ACK));
        }
        assert!(!datapath.apps.is_sweep_due());
        let mut ports = PORTS;
        while !datapath.apps.is_sweep_due() {
            closed(&datapath, (CLIENT, ports.next().unwrap()));
        }
        let fill = datapath.flow_fill();
        assert!(fill.is_scarce());
        assert_eq!(usize::try_from(fill.entries).unwrap(), flows(node));
        let soon_ns = now_ns() + 3 * SECOND_NS;
        datapath.apps.expire_idle(soon_ns, IDLE_NS).unwrap();
        assert_eq!(flows(node), 2 * established.len());
        assert!(!datapath.apps.is_sweep_due());
        assert_eq!(datapath.flow_fill().entries, 2 * established.len() as u64);
        for here in established {
            let (_, server) = ends(&arrive(&datapath, &tcp(here, THERE, ACK)).frame);
            assert_eq!(server, SERVER);
        }
    });
}

#[test]
fn a_connection_without_translation_ends_both_entries_of_one_with_its_ends() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let here: (Ipv6Addr, u16) = (CLIENT, 40_000);
        arrive(&datapath, &tcp(here, THERE, SYN));
        assert_eq!(flows(node), 2);
        arrive(&datapath, &tcp(here, SERVER, SYN));
        assert_eq!(flows(node), 0);
        assert_eq!(reply(&datapath, here, SYN_ACK), (SERVER, here));
    });
}

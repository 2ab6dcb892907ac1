//! NAT ports: the least recently used one first, not while its backend holds TIME_WAIT, and what happens when none is free.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Mutex;

use dormouse_agent_datapath::{Datapath, Verdict};
use dormouse_ebpf::flow::NAT_PORTS;
use dormouse_ebpf::stage::{IN_FLIGHT_NS, TIME_WAIT_NS};
use dormouse_rig::address::CLIENT;
use dormouse_rig::frame::{ACK, FIN, SYN, SYN_ACK, ends, tcp};
use dormouse_rig::tcx::{DROP, REDIRECT};

use super::node::{given, with_node};
use super::{THERE, arrive};

/// The client of a connection by its number.
fn client(number: u32) -> (Ipv6Addr, u16) {
    let port = u16::try_from(10_000 + number % 50_000).unwrap();
    (
        Ipv6Addr::from_bits(CLIENT.to_bits() + u128::from(number / 50_000)),
        port,
    )
}

/// An established connection. Returns its NAT port; none if it got none.
fn connect(datapath: &Datapath, number: u32) -> Option<u16> {
    let here = client(number);
    let run = arrive(datapath, &tcp(here, THERE, SYN));
    let (nat, server) = ends(&run.frame);
    arrive(datapath, &tcp(server, nat, SYN_ACK));
    arrive(datapath, &tcp(here, THERE, ACK));
    (run.verdict == REDIRECT).then_some(nat.1)
}

/// A connection that the server closes first, and so holds in TIME_WAIT.
fn serve(datapath: &Datapath, number: u32) -> Option<u16> {
    let here = client(number);
    let run = arrive(datapath, &tcp(here, THERE, SYN));
    let (nat, server) = ends(&run.frame);
    arrive(datapath, &tcp(server, nat, SYN_ACK));
    arrive(datapath, &tcp(here, THERE, ACK));
    arrive(datapath, &tcp(server, nat, FIN));
    arrive(datapath, &tcp(here, THERE, FIN));
    (run.verdict == REDIRECT).then_some(nat.1)
}

#[test]
fn no_port_is_taken_again_within_time_wait_while_others_are_free() {
    with_node(|node| {
        let datapath = node.open();
        let half = NAT_PORTS / 2;
        let ports = |from: u32| -> HashSet<u16> {
            (from..from + half)
                .map(|number| serve(&datapath, number).unwrap())
                .collect()
        };
        let first = ports(0);
        assert_eq!(first.len(), half as usize);
        node.age_flows(TIME_WAIT_NS - 1_000_000_000);
        let second = ports(half);
        assert_eq!(second.len(), half as usize);
        assert_eq!(first.intersection(&second).count(), 0);
        assert_eq!(given(&datapath, Verdict::NatPortReused), 0);
    });
}

/// Walks over the flow table as the agent does, without ending any flow.
fn sweep(datapath: &Datapath) {
    assert_eq!(datapath.apps.expire_idle(0, u64::MAX).unwrap(), 0);
}

/// What is logged while `work` runs.
fn logged(work: impl FnOnce()) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = tracing_subscriber::fmt().with_ansi(false);
    let log = log.with_writer(Mutex::new(file.reopen().unwrap()));
    tracing::subscriber::with_default(log.finish(), work);
    std::fs::read_to_string(file.path()).unwrap()
}

#[test]
fn the_port_of_the_connection_that_ended_first_is_taken_when_none_is_free() {
    with_node(|node| {
        let datapath = node.open();
        let used: Vec<u16> = (0..NAT_PORTS)
            .map(|number| serve(&datapath, number).unwrap())
            .collect();
        let next: Vec<u16> = (NAT_PORTS..NAT_PORTS + 100)
            .map(|number| serve(&datapath, number).unwrap())
            .collect();
        assert_eq!(next, used[..100]);
        assert_eq!(given(&datapath, Verdict::NatPortReused), 100, "counted");
        let report = "masqueraded connections found no free NAT port";
        let log = logged(|| sweep(&datapath));
        assert!(
            log.contains(report) && log.contains("connections=100"),
            "{log}"
        );
        assert!(
            !logged(|| sweep(&datapath)).contains(report),
            "reported once"
        );
        assert_eq!(given(&datapath, Verdict::DroppedNoPort), 0);
    });
}

#[test]
fn connections_in_use_keep_their_ports_and_the_next_one_is_dropped_and_counted() {
    with_node(|node| {
        let datapath = node.open();
        let used: HashSet<u16> = (0..NAT_PORTS)
            .map(|number| connect(&datapath, number).unwrap())
            .collect();
        assert_eq!(used.len(), NAT_PORTS as usize);
        node.age_flows(10 * TIME_WAIT_NS);
        let run = arrive(&datapath, &tcp(client(NAT_PORTS), THERE, SYN));
        assert_eq!(run.verdict, DROP);
        assert_eq!(given(&datapath, Verdict::DroppedNoPort), 1);
    });
}

#[test]
fn a_block_of_ports_in_long_use_is_passed() {
    with_node(|node| {
        let datapath = node.open();
        let block = NAT_PORTS * 3 / 4;
        for number in 0..block {
            connect(&datapath, number).unwrap();
        }
        for number in block..block + NAT_PORTS / 2 {
            assert!(serve(&datapath, number).is_some(), "connection {number}");
            if number % 5_000 == 0 {
                node.age_flows(TIME_WAIT_NS + IN_FLIGHT_NS);
            }
        }
        assert_eq!(given(&datapath, Verdict::DroppedNoPort), 0);
    });
}

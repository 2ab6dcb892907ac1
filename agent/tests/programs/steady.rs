//! Steady packets at the uplink's XDP program: those of a connection to another node are sent on as the classifier sends them, in both
//! directions, and what the classifier has to see passes untouched.

use std::net::{Ipv4Addr, SocketAddr};

use dormouse_agent_datapath::{Datapath, Hook, Run, Verdict};
use dormouse_agent_inspect::frame::{Opening, ends};
use dormouse_ebpf::flow::REPLY;
use dormouse_ebpf::found::WHILE_BITS;
use dormouse_ebpf::packet::{L3, TCP, UDP};
use dormouse_rig::frame::{ACK, FIN, RST, SYN, SYN_ACK, tcp};
use dormouse_rig::xdp::{PASS, TX};
use dormouse_rig::{ip, tcx};

use super::HERE;
use super::direct::NEIGHBOR4;
use super::mutated::world;
use super::node::{Node, given, pass_ticks, with_node};
use super::xdp::{compare, received};

/// Longer than any test takes.
const IDLE_NS: u64 = 1_000_000_000_000;
/// Frames that are left to the kernel, one after the other, at most: as many as the test may change its processor.
const TURNS_MAX: usize = 8;
/// Data that does not fit the link with its headers.
const LARGE: usize = 1_480;
/// Offsets in a frame of IPv4: the length, the time to live, and TCP's numbers and flags.
const LENGTH: usize = 16;
const TTL: usize = 22;
const SEQUENCE: usize = 38;
const ACKNOWLEDGED: usize = 42;
const FLAGS: usize = 47;

/// A connection of IPv4 to a Service whose backend is a pod of another node.
struct Connection {
    here: SocketAddr,
    there: SocketAddr,
    nat: SocketAddr,
    server: SocketAddr,
    protocol: u8,
}

impl Connection {
    fn request(&self, flags: u8) -> Vec<u8> {
        packet(self.protocol, (self.here, self.there), flags)
    }

    fn reply(&self, flags: u8) -> Vec<u8> {
        packet(self.protocol, (self.server, self.nat), flags)
    }

    /// Begins one, and establishes it.
    fn establish(datapath: &Datapath, protocol: u8) -> Self {
        let here = SocketAddr::from((world::CLIENT4, 40_000));
        let there = SocketAddr::from((world::SERVICE4, 80));
        let first = classify(datapath, &packet(protocol, (here, there), SYN));
        let (nat, server) = ends(&first.frame).unwrap();
        let it = Self {
            here,
            there,
            nat,
            server,
            protocol,
        };
        for frame in [
            it.reply(SYN_ACK),
            it.request(ACK),
            it.reply(ACK),
            it.request(ACK),
        ] {
            classify(datapath, &frame);
        }
        it
    }
}

/// A packet between these ends; only those of TCP have flags.
pub(super) fn packet(
    protocol: u8,
    (source, target): (SocketAddr, SocketAddr),
    flags: u8,
) -> Vec<u8> {
    let opening = Opening {
        source,
        target,
        protocol,
    };
    let mut frame = opening.frame();
    if protocol == TCP {
        let acknowledged: u32 = if flags == SYN { 0 } else { 2 };
        frame[SEQUENCE..SEQUENCE + 4].copy_from_slice(&[0, 0, 0, 1]);
        frame[ACKNOWLEDGED..ACKNOWLEDGED + 4].copy_from_slice(&acknowledged.to_be_bytes());
        frame[FLAGS] = flags;
    }
    frame
}

fn classify(datapath: &Datapath, frame: &[u8]) -> Run {
    datapath.programs.run(Hook::UplinkIn, frame).unwrap()
}

/// The world, where the backend is reached by the uplink.
fn open(node: &Node) -> Datapath {
    let datapath = world::open(node);
    let backend = Ipv4Addr::from(NEIGHBOR4);
    datapath.pods.remove(backend.to_ipv6_mapped()).unwrap();
    ip(&format!("route add {backend}/32 dev eth0"));
    ip(&format!(
        "neighbour replace {backend} lladdr 02:00:00:00:00:55 dev eth0 nud permanent"
    ));
    datapath
}

/// The program sends a frame on as the classifier does. Once a second on each processor it leaves one to the kernel.
fn check_sent(datapath: &Datapath, frame: &[u8]) {
    let before = given(datapath, Verdict::XdpForwarded);
    let mut verdicts = (0..=TURNS_MAX).map(|_| {
        let classified = classify(datapath, frame);
        compare(datapath, frame, &classified)
    });
    let verdict = verdicts.find(|verdict| *verdict != Ok(PASS));
    assert_eq!(verdict, Some(Ok(TX)));
    assert_eq!(given(datapath, Verdict::XdpForwarded), before + 1);
}

/// Changes the node's routes or neighbours. The program goes by them from the kernel's next tick on.
fn change(what: &str) {
    ip(what);
    pass_ticks(1);
}

/// The program passes a frame as it is.
fn check_passed(datapath: &Datapath, what: &str, frame: &[u8]) {
    let run = received(datapath, frame);
    assert_eq!((run.verdict, run.frame.as_slice()), (PASS, frame), "{what}");
}

#[test]
fn both_directions_of_a_masqueraded_connection_are_sent_on() {
    with_node(|node| {
        let datapath = open(node);
        for protocol in [TCP, UDP] {
            let it = Connection::establish(&datapath, protocol);
            check_sent(&datapath, &it.request(ACK));
            check_sent(&datapath, &it.reply(ACK));
        }
    });
}

#[test]
fn the_entries_of_a_connection_that_the_driver_sends_on_are_kept() {
    with_node(|node| {
        let datapath = open(node);
        for protocol in [TCP, UDP] {
            let it = Connection::establish(&datapath, protocol);
            for (frame, kept) in [(it.request(ACK), 2), (it.reply(ACK), 1)] {
                node.age_flows(IDLE_NS);
                // None by the classifier.
                let mut verdicts = (0..=TURNS_MAX).map(|_| received(&datapath, &frame).verdict);
                assert!(verdicts.any(|verdict| verdict == TX));
                assert_eq!(node.flows_since(IDLE_NS), kept, "{protocol}");
            }
            node.change_flows(|_, _| None);
        }
    });
}

#[test]
fn a_connection_that_its_pods_node_translates_is_forwarded_as_it_is() {
    with_node(|node| {
        let datapath = open(node);
        let there = (world::FAR_VIP, 80);
        for flags in [SYN, ACK, ACK] {
            classify(&datapath, &tcp(HERE, there, flags));
        }
        check_sent(&datapath, &tcp(HERE, there, ACK));
    });
}

#[test]
fn what_changes_the_connection_or_has_another_way_passes_as_it_is() {
    with_node(|node| {
        let datapath = open(node);
        let it = Connection::establish(&datapath, TCP);
        check_sent(&datapath, &it.request(ACK));
        for (what, flags) in [("SYN", SYN), ("FIN", FIN), ("RST", RST)] {
            check_passed(&datapath, what, &it.request(flags));
        }
        let mut last_hop = it.request(ACK);
        last_hop[TTL] = 1;
        check_passed(&datapath, "the last hop", &last_hop);
        let mut for_group = it.request(ACK);
        for_group[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        check_passed(&datapath, "for a group", &for_group);
        let left = classify(&datapath, &for_group);
        assert_eq!((left.verdict, left.frame), (tcx::NEXT, for_group));
        let backend = Ipv4Addr::from(NEIGHBOR4);
        change(&format!("route replace blackhole {backend}/32"));
        check_passed(&datapath, "a route that discards", &it.request(ACK));
        let left = classify(&datapath, &it.request(ACK));
        assert_eq!(left.verdict, tcx::PASS, "the host discards it");
        change(&format!("route replace {backend}/32 dev pods0"));
        check_passed(&datapath, "another link", &it.request(ACK));
        ip(&format!("route replace {backend}/32 dev eth0"));
        change(&format!("neighbour del {backend} dev eth0"));
        check_passed(&datapath, "no neighbour", &it.request(ACK));
        ip(&format!(
            "neighbour replace {backend} lladdr 02:00:00:00:00:55 dev eth0 nud permanent"
        ));
        check_sent(&datapath, &it.request(ACK));
        let mut large = it.request(ACK);
        large.resize(large.len() + LARGE, 0);
        let length = u16::try_from(large.len() - L3).unwrap();
        large[LENGTH..LENGTH + 2].copy_from_slice(&length.to_be_bytes());
        check_passed(&datapath, "too large", &large);
        node.change_flows(|_, flow| (!flow.is(REPLY)).then_some(*flow));
        pass_ticks(1 << WHILE_BITS);
        check_passed(&datapath, "no reply entry", &it.request(ACK));
    });
}

//! The same over IPv4: a masqueraded connection, whose checksums and addresses are at other offsets.

use std::net::{Ipv4Addr, SocketAddr};

use dormouse_agent_datapath::Hook;
use dormouse_agent_inspect::frame::{Opening, ends};
use dormouse_ebpf::packet::{TCP, UDP};
use dormouse_rig::frame::{ACK, SYN, SYN_ACK};

use super::super::direct::NEIGHBOR4;
use super::super::mutated::world;
use super::super::node::with_node;
use super::flows;

/// A segment of IPv4, whose checksum no program looks at; its sequence number is 1.
fn tcp4(source: SocketAddr, target: SocketAddr, flags: u8, acknowledged: u32) -> Vec<u8> {
    let opening = Opening {
        source,
        target,
        protocol: TCP,
    };
    let mut frame = opening.frame();
    frame[38..42].copy_from_slice(&[0, 0, 0, 1]);
    frame[42..46].copy_from_slice(&acknowledged.to_be_bytes());
    frame[47] = flags;
    frame
}

#[test]
fn a_masqueraded_connection_of_ipv4_is_established_as_one_of_ipv6() {
    with_node(|node| {
        let datapath = world::open(node);
        // The Service's backend is a pod of another node, whose answers come in by the uplink.
        let neighbor4 = Ipv4Addr::from(NEIGHBOR4).to_ipv6_mapped();
        datapath.pods.remove(neighbor4).unwrap();
        let here = SocketAddr::from((world::CLIENT4, 40_000));
        let there = SocketAddr::from((world::SERVICE4, 80));
        let run = |source, target, flags, acknowledged| {
            let frame = tcp4(source, target, flags, acknowledged);
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            ends(&run.frame).unwrap()
        };
        let (nat, server) = run(here, there, SYN, 0);
        assert_eq!(server.port(), 8_000);
        assert_eq!(run(server, nat, SYN_ACK, 2), (there, here));
        run(here, there, ACK, 1 << 30);
        assert_eq!(flows(node), (2, 0), "a number that was never sent");
        assert_eq!(run(here, there, ACK, 2), (nat, server));
        assert_eq!(flows(node), (0, 2));
        assert_eq!(run(server, nat, ACK, 2), (there, here));
        let question = Opening {
            source: here,
            target: there,
            protocol: UDP,
        };
        let ask = |opening: Opening| {
            let run = datapath.programs.run(Hook::UplinkIn, &opening.frame());
            ends(&run.unwrap().frame).unwrap()
        };
        let (nat, server) = ask(question);
        assert_eq!(flows(node), (2, 2));
        let answer = Opening {
            source: server,
            target: nat,
            protocol: UDP,
        };
        assert_eq!(ask(answer), (there, here));
        assert_eq!(flows(node), (0, 4));
    });
}

//! Connections to an app's VIP that a router moves from one node to another one (ECMP): the other node knows nothing of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Datapath, Pinned, detach};
use dormouse_rig::address::NODE;
use dormouse_rig::frame::{End, PSH, SYN, tcp};
use dormouse_rig::tcx::DROP;

use super::node::{Node, VIP, serving, with_node};
use super::{THERE, arrive};

const CLIENTS: u16 = 200;
const PODS: u16 = 5;

/// A pod of a third node.
fn pod(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 9, 0, number + 1)
}

fn client(number: u16) -> End {
    (
        Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, number),
        40_000,
    )
}

/// The pods that connections go to, by their clients, after a packet of each.
fn chosen(node: &Node, datapath: &Datapath, flags: u8) -> BTreeMap<[u8; 16], [u8; 16]> {
    for number in 0..CLIENTS {
        let run = arrive(datapath, &tcp(client(number), THERE, flags));
        assert_ne!(run.verdict, DROP, "{number}");
    }
    let mut chosen = BTreeMap::new();
    let pinned = Pinned::open(&node.config.bpffs).unwrap();
    let shown = pinned.flows(|key, flow| {
        if key.target == VIP.octets() {
            chosen.insert(key.source, flow.target);
        }
        true
    });
    shown.unwrap();
    assert_eq!(chosen.len(), usize::from(CLIENTS), "each has a flow");
    chosen
}

#[test]
fn a_node_that_a_connection_is_moved_to_sends_it_to_the_same_pod() {
    with_node(|node| {
        let pods: Vec<_> = (0..PODS).map(pod).collect();
        let first = node.open_without_pods(|_| {});
        first.apps.publish(&serving(&pods)).unwrap();
        let before = chosen(node, &first, SYN);
        let used: BTreeSet<_> = before.values().copied().collect();
        assert_eq!(used, pods.iter().map(Ipv6Addr::octets).collect());
        drop(first);
        detach(&node.config.bpffs).unwrap();

        // Another node: no entries, another address, and the pods came in another order.
        let other = Ipv6Addr::from_bits(NODE.to_bits() + (1 << 32));
        let second = node.open_without_pods(|config| {
            config.node_prefix = (other, 96);
            config.node_address = other;
        });
        let turned: Vec<_> = pods.iter().rev().copied().collect();
        second.apps.publish(&serving(&turned)).unwrap();
        assert_eq!(chosen(node, &second, PSH), before);
    });
}

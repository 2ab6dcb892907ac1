//! A traffic split in the data plane: its weights, of new connections of one VIP over backends of three revisions, and a node without
//! an activator.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Backend, Datapath, Entry, Hook, Mode, PodEntry};
use dormouse_rig::address::{CLIENT, FAR_POD, POD};
use dormouse_rig::frame::{MACS, SYN, ends, tcp};

use super::arrive;
use super::node::{ACTING_FOR_VIP, VIP, VIP_INDEX, local_pod, serving, with_node};

const CONNECTIONS: u32 = 100_000;
/// The test run's device is the loopback device of the namespace: the sending pod's link, for a test.
const LOOPBACK: u32 = 1;

/// The pods and weights of three revisions with 90, 9 and 1 percent, as a node composes them: the second one has two pods.
fn backends(base: Ipv6Addr) -> [(Ipv6Addr, u16); 4] {
    let pod = |number: u128| Ipv6Addr::from_bits(base.to_bits() + number);
    [
        (pod(0), 58_982),
        (pod(1), 2_949),
        (pod(2), 2_949),
        (pod(3), 655),
    ]
}

fn split(base: Ipv6Addr) -> Entry {
    let backends = backends(base).map(|(address, weight)| Backend {
        address,
        port: 8000,
        weight,
    });
    Entry {
        backends: backends.into(),
        ..serving(&[])
    }
}

/// Checks that each revision's part of the connections is within 0.5% of all.
fn check(base: Ipv6Addr, all: u32, chosen: impl Fn(Ipv6Addr) -> u32) {
    let [first, second, third, last] = backends(base).map(|(address, _)| chosen(address));
    let parts = [first, second + third, last];
    assert_eq!(parts.iter().sum::<u32>(), all);
    for (part, percent) in parts.into_iter().zip([90, 9, 1]) {
        let off = part.abs_diff(all / 100 * percent);
        assert!(off <= all / 200, "{percent}%: {parts:?}");
    }
}

/// A client's address and port, different for each connection.
fn client(base: Ipv6Addr, number: u32) -> (Ipv6Addr, u16) {
    let address = Ipv6Addr::from_bits(base.to_bits() + (u128::from(number / 1_000) << 8));
    let port = u16::try_from(number % 1_000).unwrap();
    (address, 30_000 + port)
}

fn begun(datapath: &Datapath, address: Ipv6Addr) -> u32 {
    let counts = datapath.backend_counts(VIP_INDEX);
    let count = counts.iter().find(|count| count.address == address);
    count.unwrap().load.flows.begun
}

#[test]
fn connections_from_outside_hold_the_weights_and_are_counted_by_backend() {
    with_node(|node| {
        let datapath = node.open();
        for (address, _) in backends(POD) {
            let pod = PodEntry {
                address,
                ..local_pod()
            };
            datapath.pods.add(pod).unwrap();
        }
        datapath.apps.publish(&split(POD)).unwrap();
        for number in 0..CONNECTIONS {
            arrive(&datapath, &tcp(client(CLIENT, number), (VIP, 80), SYN));
        }
        check(POD, CONNECTIONS, |address| begun(&datapath, address));
    });
}

#[test]
fn connections_of_a_pod_hold_the_weights() {
    with_node(|node| {
        let datapath = node.open();
        let sender = PodEntry {
            ifindex: LOOPBACK,
            mac: MACS.0,
            ..local_pod()
        };
        datapath.pods.add(sender).unwrap();
        datapath.apps.publish(&split(FAR_POD)).unwrap();
        let mut chosen: HashMap<Ipv6Addr, u32> = HashMap::new();
        for port in 5_000..65_000 {
            let frame = tcp((POD, port), (VIP, 80), SYN);
            let run = datapath.programs.run(Hook::PodIn, &frame).unwrap();
            let target: [u8; 16] = run.frame[38..54].try_into().unwrap();
            *chosen.entry(Ipv6Addr::from(target)).or_default() += 1;
        }
        check(FAR_POD, 60_000, |address| chosen[&address]);
    });
}

/// Where a new connection to the VIP goes.
fn target(datapath: &Datapath, port: u16) -> (Ipv6Addr, u16) {
    let frame = arrive(datapath, &tcp((CLIENT, port), (VIP, 80), SYN)).frame;
    ends(&frame).1
}

#[test]
fn while_no_activator_answers_the_targets_that_serve_have_all_connections_also_after_a_restart_of_the_agent()
 {
    with_node(|node| {
        let datapath = node.open();
        let partly = Entry {
            mode: Mode::Proxy,
            ..serving(&[POD])
        };
        datapath.apps.publish(&partly).unwrap();
        datapath.apps.grant(1);
        assert_eq!(target(&datapath, 40_001), (ACTING_FOR_VIP, 80));
        datapath.apps.use_stale(true).unwrap();
        assert_eq!(target(&datapath, 40_002), (POD, 8000));
        let valid = u64::MAX / 4;
        datapath.apps.grant(valid);
        assert_eq!(target(&datapath, 40_003), (ACTING_FOR_VIP, 80));
        drop(datapath);

        let next = node.open();
        next.apps.grant(1);
        next.apps.use_stale(true).unwrap();
        assert_eq!(target(&next, 40_004), (POD, 8000));
        next.apps.publish(&serving(&[POD])).unwrap();
        next.apps.grant(valid);
        assert_eq!(target(&next, 40_005), (POD, 8000), "all targets serve now");
    });
}

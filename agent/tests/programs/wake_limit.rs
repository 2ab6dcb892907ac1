//! The limit of wakes by source: who takes a token, who is dropped without one, and who needs none.

use std::net::Ipv6Addr;

use dormouse_agent_datapath::{Datapath, Entry, Hook, KernelEvents, PodEntry, Verdict, WakeLimits};
use dormouse_agent_services::Prefix;
use dormouse_rig::address::{CLIENT, NODE, POD};
use dormouse_rig::frame::{ACK, MACS, SYN, tcp};
use dormouse_rig::tcx::{DROP, REDIRECT};

use super::node::{Node, VIP, VIP_INDEX, events, given, serving, sleeping, with_node};
use super::{THERE, in_pod};

/// Wakes at once in these tests. The rate is so low that no token comes back during one.
const BURST: u32 = 3;
/// A host in the same /64 as [`CLIENT`], and one outside it.
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x101);
const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 9);
/// The test run's device is the loopback device of the namespace: this pod's link, for a test.
const LOOPBACK: u32 = 1;
const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 1, 0x20);

fn limits(trusted: &[&str]) -> WakeLimits {
    let trusted = trusted.iter().map(|text| Prefix::parse(text).unwrap());
    WakeLimits {
        per_minute: 1,
        burst: BURST,
        trusted: trusted.collect(),
    }
}

/// A data path with these limits, and the reader of its events.
fn limited(node: &Node, limits: &WakeLimits) -> (Datapath, KernelEvents) {
    let datapath = node.open();
    datapath.limit_wakes(limits).unwrap();
    let ring = datapath.take_events().unwrap();
    (datapath, ring)
}

/// A VIP of the range without an entry.
fn unknown(number: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(VIP.to_bits() + 100 + u128::from(number))
}

/// The verdict on a SYN from `source`, which comes in by the uplink.
fn knock(datapath: &Datapath, source: Ipv6Addr, vip: Ipv6Addr) -> u32 {
    let frame = tcp((source, 40_000), (vip, 80), SYN);
    let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
    run.verdict
}

fn dropped(datapath: &Datapath) -> u64 {
    given(datapath, Verdict::DroppedWakeLimit)
}

#[test]
fn a_source_beyond_its_burst_is_dropped_and_wakes_nobody_while_others_do() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&[]));
        for number in 0..BURST {
            assert_eq!(knock(&datapath, CLIENT, unknown(number)), REDIRECT);
        }
        assert_eq!(events(&mut ring).len(), 3);
        assert_eq!(knock(&datapath, CLIENT, unknown(10)), DROP);
        assert_eq!(knock(&datapath, NEIGHBOUR, unknown(11)), DROP, "its /64");
        assert_eq!((events(&mut ring).len(), dropped(&datapath)), (0, 2));
        assert_eq!(given(&datapath, Verdict::Proxied), 3, "no flow was begun");
        assert_eq!(knock(&datapath, OTHER, unknown(10)), REDIRECT);
        assert_eq!(events(&mut ring).len(), 1, "the drop noted no wake");
    });
}

#[test]
fn a_sleeping_app_is_not_woken_without_a_token_and_the_drop_is_counted_for_it() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&[]));
        datapath.apps.publish(&sleeping()).unwrap();
        for number in 0..BURST {
            knock(&datapath, CLIENT, unknown(number));
        }
        events(&mut ring);
        assert_eq!(knock(&datapath, CLIENT, VIP), DROP);
        assert_eq!(events(&mut ring), []);
        let pinned = dormouse_agent_datapath::Pinned::open(&node.config.bpffs).unwrap();
        let slots: Vec<u32> = pinned.drops().unwrap().keys().map(|key| key.slot).collect();
        assert_eq!(slots, [VIP_INDEX]);
        assert_eq!(knock(&datapath, OTHER, VIP), REDIRECT);
        assert_eq!(events(&mut ring).len(), 1);
    });
}

#[test]
fn packets_to_a_vip_whose_wake_is_pending_take_no_token() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&[]));
        datapath.apps.publish(&sleeping()).unwrap();
        for port in 0..1_000 {
            let frame = tcp((CLIENT, 10_000 + port), THERE, SYN);
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            assert_eq!(run.verdict, REDIRECT, "client {port} parks");
        }
        assert_eq!((events(&mut ring).len(), dropped(&datapath)), (1, 0));
        assert_eq!(
            knock(&datapath, CLIENT, unknown(0)),
            REDIRECT,
            "tokens left"
        );
    });
}

#[test]
fn apps_that_are_served_and_connections_that_exist_need_no_token() {
    with_node(|node| {
        let (datapath, _ring) = limited(node, &limits(&[]));
        for number in 0..=BURST {
            knock(&datapath, CLIENT, unknown(number));
        }
        assert_eq!(dropped(&datapath), 1, "none is left");
        datapath.apps.publish(&serving(&[POD])).unwrap();
        let arrives = |flags| {
            let frame = tcp((CLIENT, 40_001), THERE, flags);
            datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
        };
        arrives(SYN);
        assert_eq!(given(&datapath, Verdict::ServedLocal), 1);
        // The connection to an activator goes on, although its app could not be woken by this client now.
        let parked = Entry {
            vip: VIP_INDEX + 100,
            ..sleeping()
        };
        datapath.apps.publish(&parked).unwrap();
        let frame = tcp((CLIENT, 40_000), (unknown(0), 80), ACK);
        let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
        assert_eq!((run.verdict, dropped(&datapath)), (REDIRECT, 1));
    });
}

#[test]
fn trusted_proxies_and_nodes_without_a_limit_wake_any_number_of_apps() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&["192.0.2.0/24", "2001:db8:d0::/64"]));
        for number in 0..100 {
            assert_eq!(knock(&datapath, CLIENT, unknown(number)), REDIRECT);
        }
        assert_eq!(events(&mut ring).len(), 100);
        let unlimited = WakeLimits {
            per_minute: 0,
            ..limits(&[])
        };
        datapath.limit_wakes(&unlimited).unwrap();
        for number in 200..300 {
            assert_eq!(knock(&datapath, OTHER, unknown(number)), REDIRECT);
        }
        assert_eq!(dropped(&datapath), 0);
        let many = ["192.0.2.0/24"; 9];
        assert!(datapath.limit_wakes(&limits(&many)).is_err());
    });
}

#[test]
fn a_pod_has_one_bucket_for_all_of_its_addresses() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&[]));
        let second = Ipv6Addr::from_bits(OWN.to_bits() + 1);
        for address in [OWN, second] {
            let pod = PodEntry {
                address,
                address4: None,
                ifindex: LOOPBACK,
                mac: MACS.0,
                direct: true,
            };
            datapath.pods.add(pod).unwrap();
        }
        let sends = |source, number| {
            let frame = tcp((source, 40_000), (unknown(number), 80), SYN);
            datapath.programs.run(Hook::PodIn, &frame).unwrap().verdict
        };
        for number in 0..BURST {
            assert_eq!(sends(OWN, number), REDIRECT);
        }
        assert_eq!((sends(OWN, 10), sends(second, 11)), (DROP, DROP));
        assert_eq!((events(&mut ring).len(), dropped(&datapath)), (3, 2));
        assert_eq!(knock(&datapath, CLIENT, unknown(10)), REDIRECT, "its own");
    });
}

#[test]
fn calls_of_the_nodes_processes_are_refused_without_a_token() {
    with_node(|node| {
        let (datapath, mut ring) = limited(node, &limits(&[]));
        let refused = |first: u32| {
            let program = format!(
                "
import socket
refused = 0
for vip in range({first}, {first} + 10):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try: s.connect(('fd00:10::%x' % vip, 80))
    except ConnectionRefusedError: refused += 1
    except OSError: pass
print(refused)
"
            );
            let pod = in_pod(node, &program).wait_with_output().unwrap();
            String::from_utf8(pod.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(refused(0x100), "7");
        assert_eq!((events(&mut ring).len(), dropped(&datapath)), (3, 7));
        // A reverse proxy in the host's network is trusted by the node's address.
        let of_node = format!("{NODE}/128");
        datapath.limit_wakes(&limits(&[&of_node])).unwrap();
        assert_eq!(refused(0x200), "0");
        assert_eq!(events(&mut ring).len(), 10);
    });
}

/// A bucket that was emptied at a wake a minute is not full for three minutes, whatever the rate is then.
#[test]
fn a_changed_limit_gives_each_source_a_full_bucket() {
    with_node(|node| {
        let (datapath, _ring) = limited(node, &limits(&[]));
        for number in 0..BURST {
            knock(&datapath, CLIENT, unknown(number));
        }
        let trusting = limits(&["192.0.2.0/24"]);
        datapath.limit_wakes(&trusting).unwrap();
        assert_eq!(
            knock(&datapath, CLIENT, unknown(10)),
            DROP,
            "the same limit"
        );
        let faster = WakeLimits {
            per_minute: 2,
            ..trusting
        };
        datapath.limit_wakes(&faster).unwrap();
        for number in 20..20 + BURST {
            assert_eq!(knock(&datapath, CLIENT, unknown(number)), REDIRECT);
        }
        assert_eq!(knock(&datapath, CLIENT, unknown(30)), DROP);
    });
}

#[test]
fn buckets_outlive_the_agent() {
    with_node(|node| {
        let (datapath, ring) = limited(node, &limits(&[]));
        for number in 0..BURST {
            knock(&datapath, CLIENT, unknown(number));
        }
        drop((ring, datapath));
        let (datapath, _ring) = limited(node, &limits(&[]));
        assert_eq!(knock(&datapath, CLIENT, unknown(10)), DROP);
    });
}

//! The newer programs of a take-over, before the older ones in front of them are gone.

use std::collections::HashSet;
use std::path::Path;

use aya::maps::{Array, Map, MapData};
use dormouse_agent_datapath::Datapath;
use dormouse_ebpf::config::{Config as Facts, Forwarding};
use dormouse_rig::address::CLIENT;
use dormouse_rig::frame::{RST, SYN, ends, tcp};
use dormouse_rig::tcx::REDIRECT;

use super::node::with_node;
use super::{REST_NS, THERE, arrive};

/// Connections before the rest, and after: together fewer than there are NAT ports in one half.
const BEFORE: u16 = 8_000;
const AFTER: u16 = 500;

/// Puts a state of forwarding in force, by the pinned maps in this folder.
fn put(pins: &Path, forwarding: Forwarding) {
    let open = |name| Map::from_map_data(MapData::from_pin(pins.join(name)).unwrap()).unwrap();
    let current: Array<_, u64> = open("current").try_into().unwrap();
    let mut facts: Array<_, Facts> = open("config").try_into().unwrap();
    let slot = u32::from(current.get(&0, 0).unwrap() & 1 == 1);
    let known = facts.get(&slot, 0).unwrap();
    let changed = Facts {
        forwarding: forwarding.into(),
        ..known
    };
    facts.set(slot, changed, 0).unwrap();
}

/// A connection that its client resets at once. Returns its NAT port, if it got one.
fn connect(datapath: &Datapath, client_port: u16) -> Option<u16> {
    let here = (CLIENT, client_port);
    let run = arrive(datapath, &tcp(here, THERE, SYN));
    arrive(datapath, &tcp(here, THERE, RST));
    let (nat, _) = ends(&run.frame);
    (run.verdict == REDIRECT).then_some(nat.1)
}

/// The older programs may have the ended connection's flow, by which they would translate the next one's replies.
#[test]
fn the_newer_programs_use_no_nat_port_again_until_the_older_ones_are_gone() {
    with_node(|node| {
        let datapath = node.open();
        let pins = node.config.bpffs.join("v6");
        let ports = |from: u16, count: u16| -> HashSet<u16> {
            let clients = from..from + count;
            clients
                .filter_map(|client| connect(&datapath, client))
                .collect()
        };
        put(&pins, Forwarding::TakingOver);
        let used = ports(10_000, BEFORE);
        assert!(used.iter().all(|port| port % 2 == 0));
        node.age_flows(REST_NS);
        let fresh = ports(20_000, AFTER);
        assert!(!fresh.is_empty());
        assert_eq!(fresh.intersection(&used).count(), 0);
        put(&pins, Forwarding::Off);
        let any = ports(30_000, 20_000);
        assert_ne!(any.intersection(&used).count(), 0);
    });
}

//! The loaded programs decide as kube-proxy did: each recorded packet is sent through them as a real frame, and what the
//! node itself sends is decided over the same maps, or connected for real. Packets from outside run through the uplink's XDP program
//! first, which must do what the classifier does.
//!
//! Reads the scenarios that the core is tested with, `services/tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files
//! that `DORMOUSE_KUBE_PROXY_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod calls;
mod clients;
mod connects;
mod driver;
mod flows;
mod frame;
mod outcome;
mod run;
mod tally;
mod world;

use std::path::Path;

use serde_json::Value;

use calls::{Asker, Servers};
use connects::Line;
use dormouse_agent_datapath::{Config, XdpMode};
use dormouse_agent_services_samples::recorded;
use dormouse_rig::address::NODE;
use dormouse_rig::{Node, UPLINK, on_node};
use run::Run;
use tally::Tally;
use world::World;

#[test]
fn kube_proxy_vectors() {
    on_node(|node| {
        let mut world = World::open(config(node));
        let mut tally = Tally::default();
        for scenario in scenarios() {
            tally.begin(&scenario);
            let mut run = Run::new(&mut world, &scenario);
            for step in recorded::list(&scenario["steps"]) {
                tally.step();
                run.send(step, &mut tally);
            }
            run.end(&mut tally);
        }
        println!("programs: {tally}");
        assert_eq!(world.slots(), Vec::<u32>::new(), "nothing is served");
        assert!(
            tally.decisions() > 91_000,
            "too few decisions read: {tally}"
        );
        assert_eq!(tally.differences(), 0, "{tally}");
        let dropped = world.dropped_by_driver;
        println!("dropped by the driver, as by the classifier: {dropped}");
        assert!(dropped > 100, "too few reach the driver's rule: {dropped}");
        assert_eq!(tally.unfair(), [], "all have an equal chance");
    });
}

#[test]
fn an_agent_that_takes_over_leads_clients_and_flows_as_the_one_before_did() {
    on_node(|node| {
        let mut world = World::open(config(node));
        let mut tally = Tally::default();
        let known = |step: &Value| !step["newFlows"].is_null() || !step["newAffinity"].is_null();
        for scenario in connects::sample(scenarios()) {
            let mut steps = recorded::list(&scenario["steps"]);
            let Some(relief) = steps.position(known) else {
                continue;
            };
            tally.begin(&scenario);
            let mut run = Run::new(&mut world, &scenario);
            for (number, step) in recorded::list(&scenario["steps"]).enumerate() {
                tally.step();
                run.send(step, &mut tally);
                if number == relief {
                    run.relieve();
                }
            }
            run.end(&mut tally);
        }
        println!("relieved: {tally}");
        assert!(tally.followed > 50, "too few flows: {tally}");
        assert_eq!(tally.differences(), 0, "{tally}");
    });
}

#[test]
fn the_nodes_own_processes_reach_whom_kube_proxy_chose_and_believe_it_is_the_vip() {
    on_node(|node| {
        let mut world = World::open(config(node));
        let (mut asker, mut servers) = (Asker::new(node.cgroup()), Servers::default());
        let mut tally = Tally::default();
        for scenario in connects::sample(scenarios()) {
            tally.begin(&scenario);
            let mut line = Line {
                scenario: &scenario,
                asker: &mut asker,
                servers: &mut servers,
            };
            let mut run = Run::new(&mut world, &scenario);
            for step in recorded::list(&scenario["steps"]) {
                tally.step();
                run.call(step, &mut line, &mut tally);
            }
            run.end(&mut tally);
        }
        println!("sockets: {tally}");
        assert!(tally.decisions() > 500, "too few calls made: {tally}");
        assert_eq!(tally.differences(), 0, "{tally}");
    });
}

fn scenarios() -> Vec<Value> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("services/tests/vectors");
    recorded::scenarios(&own).collect()
}

/// The scenarios' nodes have one IPv6 address, which is in no node prefix of ours.
fn config(node: &Node) -> Config {
    Config {
        bpffs: node.bpffs().to_owned(),
        uplink: UPLINK.to_owned(),
        cgroup: node.cgroup().to_owned(),
        node_prefix: (NODE, 96),
        node_address: "2001:db8::2".parse().unwrap(),
        flows_max: dormouse_ebpf::flow::FLOWS_MAX,
        xdp: XdpMode::Off,
        log_packets: None,
    }
}

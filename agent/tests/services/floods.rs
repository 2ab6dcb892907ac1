//! kill -9 of an agent in the middle of a flood of connections: what its node has before is there afterwards, by count.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use dormouse_agent_datapath::Pinned;
use dormouse_rig::load::Load;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Sockets, wait};

use crate::checks::at;
use crate::cluster::{Cluster, LIGHT_PORT, POD_PORT};
use crate::manifests::service;
use crate::node::ask;
use crate::routes::reuse_ports;
use crate::uplink::Uplink;

/// Entries of the first node's flow table, which the flood fills within seconds, and not between two questions of a connection; the
/// second node has the usual table.
const ROOM: usize = 8_192;
const FLAGS: [&[&str]; 2] = [&["--flows-max", "8192"], &[]];
/// Connections that are open all the time.
const HELD: usize = 100;
/// Those of them that a full table may lose. When the kernel's LRU list is full for the first time, it clears all marks of use
/// within milliseconds, and evicts entries that no packet has used since. A connection is reset if its reply flow is evicted alone
/// between a request and its answer: the next request would have restored it.
const LOST_MAX: usize = 10;
/// Connections of each of two floods in each phase, which have two entries each.
const PHASE: u64 = 2_000;

/// A cluster for floods. Each test leaves both nodes with an agent.
struct Flooded {
    _servers: Vec<Server>,
    cluster: Cluster,
}

static FLOODED: Shared<Flooded> = Shared::new();

impl Fixture for Flooded {
    fn build(prefix: &str) -> Self {
        let flags = |number: usize| FLAGS[number - 1].iter().map(ToString::to_string).collect();
        let mut cluster = Cluster::build_with(prefix, Uplink::Classifier, flags);
        let backends = [cluster.pod(0, 1), cluster.pod(1, 1)];
        let servers = backends.map(|pod| {
            let echo = Server::start(&pod.sockets, "echo", POD_PORT);
            [Server::light(&pod.sockets, LIGHT_PORT), echo]
        });
        let ends = backends.map(|pod| pod.end.clone());
        for sockets in [&cluster.client, &cluster.pod(0, 0).bare] {
            reuse_ports(sockets);
        }
        cluster.apply(&[
            service("light", &["fd00:20::71"], LIGHT_PORT)
                .node_port(30_071)
                .to(&ends),
            service("held", &["fd00:20::72"], POD_PORT)
                .node_port(30_072)
                .to(&ends),
        ]);
        Self {
            _servers: servers.into_iter().flatten().collect(),
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// What a node's maps have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stand {
    /// Established connections to the Service of those that stay.
    held: usize,
    slots: usize,
    frontends: usize,
    backends: usize,
    pods: usize,
}

impl Flooded {
    fn flows(&self, node: usize, conditions: &[&str]) -> usize {
        let arguments = [&["flows", "--limit", "0"], conditions].concat();
        let count = ask(&self.cluster.nodes[node], &arguments);
        count.trim().parse().unwrap()
    }

    fn stand(&self, node: usize, held: SocketAddr) -> Stand {
        let (vip, port) = (held.ip().to_string(), held.port().to_string());
        let conditions = ["--to", &vip, "--port", &port, "--state", "established"];
        let pinned = Pinned::open(&self.cluster.nodes[node].host.bpffs).unwrap();
        let slots: Vec<_> = pinned.followed().map(|(slot, ..)| slot).collect();
        let backends = slots.iter().flat_map(|slot| pinned.backend_counts(*slot));
        let backends: BTreeSet<_> = backends.map(|backend| backend.id).collect();
        Stand {
            held: self.flows(node, &conditions),
            slots: slots.len(),
            frontends: pinned.frontends().unwrap().len(),
            backends: backends.len(),
            pods: pinned.pods().unwrap().len(),
        }
    }

    /// What the node's maps have when so many connections are established: the next packet of one restores an entry that a full
    /// table has evicted.
    fn settled(&self, node: usize, held: SocketAddr, least: usize) -> Stand {
        let mut stand = Stand::default();
        wait("the connections to be established", || {
            stand = self.stand(node, held);
            stand.held >= least
        });
        stand
    }

    /// Kills the agent under a flood of connections to `light`, beside those to `held`, and starts the next one.
    fn kill(&mut self, node: usize, from: &Sockets, [light, held]: [SocketAddr; 2]) {
        let stays = Load::held("those that stay", from, held, HELD);
        stays.go_on(HELD as u64);
        let floods = [(); 2].map(|()| Load::connections("the flood", from, light));
        let advance = || {
            let goals = floods.each_ref().map(|flood| flood.done() + PHASE);
            for (flood, goal) in floods.iter().zip(goals) {
                flood.until(goal);
            }
            stays.go_on(HELD as u64);
        };
        advance();
        let is_small = !FLAGS[node].is_empty();
        if is_small {
            wait("the flow table to be full", || {
                self.flows(node, &["--all"]) > ROOM / 4 * 3
            });
        }
        let lost_max = if is_small { LOST_MAX } else { 0 };
        let before = self.settled(node, held, HELD - lost_max);
        self.cluster.crash(node);
        advance();
        let without = self.settled(node, held, HELD - lost_max);
        if is_small {
            let rest = Stand {
                held: before.held,
                ..without
            };
            assert_eq!(rest, before, "without an agent");
        } else {
            assert_eq!(without, before, "without an agent");
        }
        // The floods go on while the next agent takes over.
        self.cluster.revive_with(node, FLAGS[node]);
        self.cluster.in_force();
        advance();
        for flood in floods {
            let outcome = flood.end();
            assert_eq!(outcome.failed, 0, "{outcome}");
        }
        let after = self.settled(node, held, HELD - lost_max);
        let rest = Stand {
            held: without.held,
            ..after
        };
        assert_eq!(rest, without, "with the next agent");
        let outcome = stays.end();
        assert!(outcome.failed <= lost_max as u64, "{outcome}");
    }
}

#[test]
fn all_that_stands_is_there_after_an_agent_is_killed_while_its_flow_table_is_full() {
    let mut it = FLOODED.lease();
    let from = it.cluster.pod(0, 0).bare.clone();
    it.kill(0, &from, [at("fd00:20::71", 80), at("fd00:20::72", 80)]);
}

#[test]
fn all_that_stands_is_there_after_an_agent_is_killed_while_its_node_port_is_flooded() {
    let mut it = FLOODED.lease();
    let (from, node) = (it.cluster.client.clone(), it.cluster.nodes[1].address());
    it.kill(
        1,
        &from,
        [30_071, 30_072].map(|port| SocketAddr::new(node, port)),
    );
}

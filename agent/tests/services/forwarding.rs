//! Packets between pods: past the host's hooks or through them, as the node was told, with the host's care for limits and
//! neighbours.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::acts::Acts;
use crate::client::{tcp, transfer};
use crate::node::attach;
use crate::place::Place;
use crate::server::{Server, servers};
use crate::stage::{POD_PORT, Stage, wait};
use crate::wiring::ip;

/// Many packets, of every size up to the largest that the kernel joins.
const STREAM_LEN: usize = 4 << 20;
/// What the limited pod may receive: more than it is asked to.
const LIMIT_BITS: u64 = 1_000_000_000;

pub(crate) struct Forwarding {
    pub(crate) stage: Stage,
    /// A pod of the first node that may not receive as much as others.
    limited: SocketAddr,
    _servers: Vec<Server>,
}

impl Forwarding {
    pub(crate) fn set() -> Self {
        let stage = Stage::set();
        let mut servers = servers(&stage);
        let node = &stage.nodes[0];
        let namespace = format!("{}-limited", node.host.name);
        ip(&format!("netns add {namespace}"));
        let netns = PathBuf::from("/run/netns").join(&namespace);
        ip(&format!("-n {namespace} link set lo up"));
        let limit = json!({"bandwidth": {"ingressRate": LIMIT_BITS, "ingressBurst": LIMIT_BITS}});
        let address = attach(node, "limited", &netns, &limit);
        let place = Place::outside(&netns);
        servers.push(Server::start(&place, "limited", POD_PORT));
        Self {
            limited: (address, POD_PORT).into(),
            stage,
            _servers: servers,
        }
    }

    pub(crate) fn play(&mut self, acts: &mut Acts) {
        self.count();
        acts.play("the host's hooks see no packet between pods", || {
            assert_eq!(self.seen_of_an_exchange(), [0, 0]);
        });
        acts.play("a neighbour that packets go to is asked after", || {
            self.age();
            wait("the neighbour to be known to be there", || {
                tcp(&self.stage.pod(0, 0).bare, self.far()).unwrap();
                self.neighbor().contains("REACHABLE")
            });
        });
        acts.play("what a pod may receive is limited all the same", || {
            self.limited();
        });
        self.stage.crash(0);
        acts.play("it stays so without an agent", || {
            assert_eq!(self.seen_of_an_exchange(), [0, 0]);
        });
        self.stage.revive_with(0, &["--forwarding", "kernel"]);
        self.stage.in_force();
        acts.play("the host's hooks see them where they are asked to", || {
            let [first, second] = self.seen_of_an_exchange();
            assert!(first > 0, "the host forwards");
            assert_eq!(second, 0, "the other node was not asked to");
        });
        self.stage.crash(0);
        self.stage.revive(0);
        self.stage.in_force();
        acts.play("a pod with a limit is known again by another agent", || {
            assert_eq!(self.seen_of_an_exchange(), [0, 0]);
            self.limited();
        });
    }

    /// Counts what is forwarded between pods, on both nodes.
    fn count(&self) {
        for node in &self.stage.nodes {
            let rules = "add table inet see; \
                 add counter inet see between; \
                 add chain inet see pass { type filter hook forward priority 0; }; \
                 add rule inet see pass ip6 saddr 2001:db8:d0::/64 ip6 daddr 2001:db8:d0::/64 meta l4proto tcp counter name between";
            let place = Place::outside(&node.host.netns);
            place.inside(|| {
                let done = std::process::Command::new("nft").arg(rules).status();
                assert!(done.unwrap().success());
            });
        }
    }

    /// Packets that a node's hooks have seen.
    fn seen(&self, node: usize) -> u64 {
        let place = Place::outside(&self.stage.nodes[node].host.netns);
        let text = place.run("nft", "-j list counter inet see between");
        let told: Value = serde_json::from_str(&text).unwrap();
        let counters = told["nftables"].as_array().unwrap();
        let counter = counters.iter().find_map(|one| one.get("counter"));
        counter.unwrap()["packets"].as_u64().unwrap()
    }

    /// What the nodes' hooks see of streams both ways between pods, on one node and across.
    fn seen_of_an_exchange(&self) -> [u64; 2] {
        let near = (self.stage.pod(0, 1).end.address, POD_PORT).into();
        let pod = &self.stage.pod(0, 0).bare;
        // The first packet to a neighbour that is not known yet is the host's.
        tcp(pod, self.far()).unwrap();
        let before = [self.seen(0), self.seen(1)];
        for target in [near, self.far()] {
            transfer(pod, target, STREAM_LEN).unwrap();
        }
        [self.seen(0) - before[0], self.seen(1) - before[1]]
    }

    fn far(&self) -> SocketAddr {
        (self.stage.pod(1, 0).end.address, POD_PORT).into()
    }

    /// Makes the first node doubt that the far pod is where it was.
    fn age(&self) {
        let change = format!("-6 neighbour change {} dev eth0 nud stale", self.far().ip());
        Place::outside(&self.stage.nodes[0].host.netns).run("ip", &change);
        assert!(!self.neighbor().contains("REACHABLE"));
    }

    fn neighbor(&self) -> String {
        let show = format!("-6 neighbour show {} dev eth0", self.far().ip());
        Place::outside(&self.stage.nodes[0].host.netns).run("ip", &show)
    }

    /// The pod with a limit hears everything by the queue that keeps it.
    fn limited(&self) {
        for pod in [self.stage.pod(0, 0), self.stage.pod(1, 0)] {
            let before = self.queued();
            transfer(&pod.bare, self.limited, STREAM_LEN).unwrap();
            let queued = self.queued() - before;
            assert!(queued >= STREAM_LEN as u64, "{queued} bytes in the queue");
        }
    }

    /// Bytes that went through the queue of the one pod that has a limit.
    fn queued(&self) -> u64 {
        let place = Place::outside(&self.stage.nodes[0].host.netns);
        let told = place.run("tc", "-s -j qdisc show");
        let told: Value = serde_json::from_str(&told).unwrap();
        let queues = told.as_array().unwrap();
        let queue = queues.iter().find(|queue| queue["kind"] == "tbf");
        queue.unwrap()["bytes"].as_u64().unwrap()
    }
}

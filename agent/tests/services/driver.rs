//! The first node's XDP program in the driver of its uplink: connections from outside to the other node's pods are sent on by it, in both
//! directions, and go on while agents are killed.
//!
//! A veth stands for the network card. Its peer takes what the program sends back only if it has a program, too, and computes the checksums that
//! senders have left to a card: frames that a card has received have theirs.

use std::fs;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use dormouse_agent_datapath::{Config, Datapath, XdpMode};
use dormouse_rig::client::transfer;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Sockets, wait};
use serde_json::json;

use crate::checks::at;
use crate::cluster::{Cluster, NODE_PORT, Origin, POD_PORT};
use crate::manifests::service;

/// A stream's length in bytes, each way.
const STREAM_LEN: usize = 8 << 20;
/// Bytes of the largest packets: some packets of a stream are the classifier's.
const PACKET_LEN: usize = 2_000;
/// Streams while an agent is away, and while the next one starts.
const STREAMS: u64 = 4;
/// Flows of the data path at the switch, which has none.
const FLOWS_MAX: u32 = 1_024;
const NATIVE: [&str; 2] = ["--xdp", "native"];
/// Addresses of Services whose only backend is on the other node: of a pod, and of the node, which has IPv4 addresses, too.
const POD: &str = "fd00:30::71";
const HOST: &str = "fd00:30::72";
const HOST4: &str = "203.0.113.72";
const POD_NODE_PORT: u16 = 30_071;

struct Driver {
    _servers: Vec<Server>,
    _port: Datapath,
    cluster: Cluster,
}

static DRIVER: Shared<Driver> = Shared::new();

impl Fixture for Driver {
    fn build(prefix: &str) -> Self {
        let native = |number| match number {
            1 => NATIVE.map(str::to_owned).into(),
            _ => Vec::new(),
        };
        let mut cluster = Cluster::build_with(prefix, native);
        let port = cluster.switch().inside(|| Datapath::open(port(&cluster)));
        cluster.switch().run("ethtool", "--features node-1 tx off");
        // The program asks the host's routes, which a host that forwards nothing of IPv4 has not.
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        Sockets::bare(&cluster.nodes[0].host.netns)
            .inside(forward)
            .unwrap();
        let external = |ips: &[&str]| json!({"externalIPs": ips});
        cluster.apply(&[
            service("driver-pod", &["fd00:20::71"], POD_PORT)
                .node_port(POD_NODE_PORT)
                .to(&[cluster.end(1, 0)])
                .with(&external(&[POD])),
            service("driver-host", &["fd00:20::72", "10.96.0.72"], NODE_PORT)
                .to(&cluster.nodes[1].ends.clone())
                .with(&external(&[HOST, HOST4])),
        ]);
        Self {
            _servers: cluster.servers(),
            _port: port.unwrap(),
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// A data path whose uplink is the switch's port to the first node: its programs have nothing to do there.
fn port(cluster: &Cluster) -> Config {
    let client = cluster.world.client();
    Config {
        bpffs: client.bpffs.clone(),
        uplink: "node-1".to_owned(),
        cgroup: client.cgroup.clone(),
        node_prefix: (Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 0), 96),
        node_address: Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1),
        flows_max: FLOWS_MAX,
        xdp: XdpMode::Native,
    }
}

impl Driver {
    /// Packets that the first node's program has sent on.
    fn sent_on(&self) -> u64 {
        self.cluster.counted(0, "xdp_forwarded")
    }

    /// A stream both ways, most of whose packets the program sends on.
    fn check(&self, from: Origin, ip: &str, port: u16) {
        let before = self.sent_on();
        transfer(self.cluster.sockets(from), at(ip, port), STREAM_LEN).unwrap();
        let sent_on = self.sent_on() - before;
        let packets = (2 * STREAM_LEN / PACKET_LEN) as u64;
        assert!(
            sent_on > packets,
            "{ip} from {from:?}: {sent_on} of more than {packets} packets"
        );
    }
}

#[test]
fn streams_to_a_pod_of_another_node_are_sent_on_by_the_driver() {
    let it = DRIVER.lease();
    for from in [Origin::Outside, Origin::Far] {
        it.check(from, POD, 80);
    }
    let node = it.cluster.nodes[0].address().to_string();
    it.check(Origin::Outside, &node, POD_NODE_PORT);
}

#[test]
fn streams_to_another_node_are_sent_on_by_the_driver_in_both_families() {
    let it = DRIVER.lease();
    for ip in [HOST, HOST4] {
        it.check(Origin::Far, ip, 80);
    }
}

#[test]
fn streams_go_on_while_an_agent_is_killed_and_the_next_replaces_its_program() {
    let mut it = DRIVER.lease();
    let client = it.cluster.client.clone();
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                transfer(&client, at(POD, 80), STREAM_LEN)?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            std::io::Result::Ok(())
        });
        let more = || {
            let goal = done.load(Ordering::Relaxed) + STREAMS;
            wait("streams to end", || {
                done.load(Ordering::Relaxed) >= goal || sending.is_finished()
            });
        };
        for _ in 0..2 {
            more();
            it.cluster.crash(0);
            let before = done.load(Ordering::Relaxed);
            more();
            assert!(done.load(Ordering::Relaxed) > before, "without an agent");
            it.cluster.revive_with(0, &NATIVE);
            it.cluster.in_force();
        }
        is_over.store(true, Ordering::Relaxed);
        sending.join().unwrap().expect("no stream was broken");
    });
    it.check(Origin::Outside, POD, 80);
}

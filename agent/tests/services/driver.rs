//! The XDP program in the drivers of the nodes' uplinks: packets from outside to the other node's pods are sent on by it, in both directions,
//! and go on while agents are killed. Other cases that come from outside run in all clusters with this [`Uplink`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use dormouse_rig::client::{ask_from, tcp, transfer};
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::wait;
use serde_json::json;

use crate::apps::{self, APP_PORT, APP_VIP, Control};
use crate::checks::at;
use crate::cluster::{Cluster, NODE_PORT, Origin, POD_PORT};
use crate::manifests::service;
use crate::uplink::Uplink;

/// A stream's length in bytes, each way.
const STREAM_LEN: usize = 8 << 20;
/// Bytes of the largest packets: some packets of a stream are the classifier's.
const PACKET_LEN: usize = 2_000;
/// Datagrams of a stream, each of which is answered, and their length in bytes.
const DATAGRAMS: u64 = 5_000;
const DATAGRAM_LEN: usize = 1_000;
/// Streams while an agent is away, and while the next one starts.
const STREAMS: u64 = 4;
/// Addresses of Services whose only backend is on the other node: of a pod, and of the node, which has IPv4 addresses, too.
const POD: &str = "fd00:30::71";
const HOST: &str = "fd00:30::72";
const HOST4: &str = "203.0.113.72";
const POD_NODE_PORT: u16 = 30_071;

struct Driver {
    _servers: Vec<Server>,
    _control: Control,
    cluster: Cluster,
}

static DRIVER: Shared<Driver> = Shared::new();

impl Fixture for Driver {
    fn build(prefix: &str) -> Self {
        let flags = |_| apps::FLAGS.map(str::to_owned).into();
        let mut cluster = Cluster::build_with(prefix, Uplink::Driver, flags);
        let control = Control::start(&cluster.world, cluster.end(1, 0).address);
        let first = cluster.nodes[0].address();
        let route = format!("-6 route replace fd00:10::/108 via {first}");
        cluster.client.run("ip", &route);
        cluster.router.run("ip", &route);
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
            _control: control,
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

impl Driver {
    /// Packets that the first node's program has sent on.
    fn sent_on(&self) -> u64 {
        self.cluster.counted(0, "xdp_forwarded")
    }

    /// What is done causes more packets than this to be sent on by the program.
    fn check_sent_on(&self, packets: u64, what: &str, done: impl FnOnce()) {
        let before = self.sent_on();
        done();
        let sent_on = self.sent_on() - before;
        assert!(
            sent_on > packets,
            "{what}: {sent_on} of more than {packets} packets"
        );
    }

    /// A stream both ways, most of whose packets the program sends on.
    fn check(&self, from: Origin, ip: &str, port: u16) {
        let packets = (2 * STREAM_LEN / PACKET_LEN) as u64;
        self.check_sent_on(packets, &format!("{ip} from {from:?}"), || {
            transfer(self.cluster.sockets(from), at(ip, port), STREAM_LEN).unwrap();
        });
    }

    /// Datagrams, nearly all of which the program sends on, and their answers.
    fn check_datagrams(&self, from: Origin, ip: &str) {
        let to = at(ip, 80);
        let socket = self.cluster.sockets(from).datagrams(to).unwrap();
        self.check_sent_on(DATAGRAMS * 9 / 5, &format!("{ip} from {from:?}"), || {
            for _ in 0..DATAGRAMS {
                let answer = ask_from(&socket, to, DATAGRAM_LEN).unwrap();
                assert_eq!(answer.from, to);
            }
        });
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
fn datagrams_and_their_answers_are_sent_on_by_the_driver_in_both_families() {
    let it = DRIVER.lease();
    for ip in [POD, HOST, HOST4] {
        it.check_datagrams(Origin::Outside, ip);
    }
}

/// The other node translates them, so what the pod sends does not pass the first one.
#[test]
fn packets_to_an_app_on_another_node_are_sent_on_by_the_driver() {
    let it = DRIVER.lease();
    for from in [Origin::Outside, Origin::Far] {
        let (client, to) = (it.cluster.sockets(from), at(APP_VIP, APP_PORT));
        wait("the nodes to have the app", || tcp(client, to).is_ok());
        assert_eq!(tcp(client, to).unwrap().name, "2a");
        let packets = (STREAM_LEN / PACKET_LEN) as u64;
        it.check_sent_on(packets, &format!("the app from {from:?}"), || {
            transfer(client, to, STREAM_LEN).unwrap();
        });
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
            it.cluster.revive_with(0, &apps::FLAGS);
            it.cluster.in_force();
        }
        is_over.store(true, Ordering::Relaxed);
        sending.join().unwrap().expect("no stream was broken");
    });
    it.check(Origin::Outside, POD, 80);
}

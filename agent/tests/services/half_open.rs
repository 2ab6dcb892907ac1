//! A flood of half-open connections, of which a small table of opening connections is full: running requests are answered, and new
//! ones are served.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::slice;
use std::thread::JoinHandle;
use std::time::Duration;

use dormouse_rig::client::tcp;
use dormouse_rig::frame::{self, SYN};
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Sockets, Tap, wait};

use crate::cluster::{Cluster, NODE_PORT, POD_PORT};
use crate::manifests::service;
use crate::node::Node;
use crate::uplink::Uplink;

/// Entries of a node's tables of flows.
const FLAGS: [&str; 2] = ["--flows-max", "1000"];
/// Requests of each family that run during the flood.
const RUNNING: usize = 100;
/// Segments of the flood, each from a source of its own: the table of opening connections is full twenty times over.
const FLOOD: u32 = 10_000;
/// So many of them must begin a flow: the table is full ten times over, also if the link has lost some.
const BEGUN_MIN: u64 = 5_000;
/// The port of the servers that answer late.
const LATE_PORT: u16 = 8_090;
const ANSWER: &[u8] = b"late";
/// A request without an answer after this time hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// A cluster whose nodes have small tables.
struct Flooded {
    _servers: Vec<Server>,
    cluster: Cluster,
}

static FLOODED: Shared<Flooded> = Shared::new();

impl Fixture for Flooded {
    fn build(prefix: &str) -> Self {
        let flags = |_| FLAGS.map(ToOwned::to_owned).to_vec();
        let mut cluster = Cluster::build_with(prefix, Uplink::Classifier, flags);
        let pod = cluster.end(0, 1);
        // Without a pod range of IPv4 a connection to it is not masqueraded: its backend is the node itself.
        let node4 = cluster.nodes[0].ends[1].clone();
        let servers = vec![
            Server::start(&cluster.pod(0, 1).sockets, "1b", POD_PORT),
            Server::start(&cluster.nodes[0].sockets, "h1", NODE_PORT),
        ];
        cluster.apply(&[
            service("late6", &["fd00:20::75"], LATE_PORT).to(slice::from_ref(&pod)),
            service("late4", &["10.96.0.75"], LATE_PORT).to(slice::from_ref(&node4)),
            service("new6", &["fd00:20::76"], POD_PORT).to(slice::from_ref(&pod)),
            service("new4", &["10.96.0.76"], NODE_PORT).to(slice::from_ref(&node4)),
        ]);
        Self {
            _servers: servers,
            cluster,
        }
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

/// A server that reads a byte of each of its connections, and answers when it is asked to.
fn late(sockets: &Sockets) -> impl FnOnce() {
    let (listener, _) = sockets.listen(LATE_PORT);
    let accepting: JoinHandle<Vec<TcpStream>> = std::thread::spawn(move || {
        let listener = TcpListener::from(listener);
        let accept = |_| {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0]).unwrap();
            stream
        };
        (0..RUNNING).map(accept).collect()
    });
    move || {
        for mut stream in accepting.join().unwrap() {
            stream.write_all(ANSWER).unwrap();
        }
    }
}

/// Requests that wait for their answers.
fn ask(from: &Sockets, to: SocketAddr) -> Vec<TcpStream> {
    let ask = |_| {
        let dialled = from.dial(to);
        let mut stream = dialled.unwrap_or_else(|error| panic!("{to}: {error}"));
        stream.write_all(b"?").unwrap();
        stream.set_read_timeout(Some(HANGS_AFTER)).unwrap();
        stream
    };
    (0..RUNNING).map(ask).collect()
}

/// The link-layer address of a node's uplink.
fn uplink_mac(node: &Node) -> frame::Mac {
    let text = Sockets::bare(&node.host.netns).run("ip", "-o link show dev eth0");
    let (_, rest) = text.split_once("link/ether ").unwrap();
    frame::mac(rest.split(' ').next().unwrap())
}

/// SYNs with forged sources to this address.
fn flood(tap: &Tap, node: frame::Mac, to: Ipv6Addr) {
    let sources: Ipv6Addr = "2001:db8:bad::".parse().unwrap();
    for number in 1..=FLOOD {
        let source = Ipv6Addr::from_bits(sources.to_bits() + u128::from(number));
        let mut segment = frame::tcp((source, 1_024), (to, 80), SYN);
        segment[..6].copy_from_slice(&node);
        tap.send(&segment);
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), 80)
}

#[test]
fn no_running_request_hangs_in_a_flood_of_syns_and_new_ones_are_served() {
    let it = FLOODED.lease();
    let cluster = &it.cluster;
    let answers = [
        late(&cluster.pod(0, 1).sockets),
        late(&cluster.nodes[0].sockets),
    ];
    let mut running = ["fd00:20::75", "10.96.0.75"].map(|vip| ask(&cluster.client, at(vip)));
    let tap = Tap::on(cluster.client.netns(), "eth0");
    let (node, to) = (
        uplink_mac(&cluster.nodes[0]),
        "fd00:20::76".parse().unwrap(),
    );
    for round in 0..2 {
        let before = cluster.counted(0, "service_served");
        flood(&tap, node, to);
        wait("the flood to fill the table", || {
            cluster.counted(0, "service_served") >= before + BEGUN_MIN
        });
        for (vip, name) in [("fd00:20::76", "1b"), ("10.96.0.76", "h1")] {
            let answer = tcp(&cluster.client, at(vip)).unwrap();
            assert_eq!(answer.name, name, "round {round}");
        }
    }
    for answer in answers {
        answer();
    }
    let hung = running.iter_mut().flatten().filter_map(|stream| {
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).err()
    });
    let hung: Vec<_> = hung.collect();
    assert!(hung.is_empty(), "{} hang: {:?}", hung.len(), hung.first());
}

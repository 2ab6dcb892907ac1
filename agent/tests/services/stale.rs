//! Flows whose backend goes: what Kubernetes 139628, Cilium 48244 and Cilium 27726 report of other data paths.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dormouse_rig::client::{ask_connected, ask_from, tcp};
use dormouse_rig::load::Load;
use dormouse_rig::{Sockets, wait};

use crate::by_each_way;
use crate::checks::at;
use crate::cluster::{Cluster, Origin, POD_PORT, SERVING};
use crate::manifests::{Condition, End, Service, service};

/// A stale flow must not live longer than this: far less than the half minute after which an idle one is over, and far more
/// than a slow machine needs.
const MOMENTS: Duration = Duration::from_secs(10);

/// A client that never stops: one socket, one source port, a datagram each millisecond.
struct Stream {
    way: &'static str,
    over: Arc<AtomicBool>,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    sent: AtomicU64,
    refused: AtomicU64,
    last: Mutex<Option<String>>,
}

impl Stream {
    fn start(way: &'static str, socket: UdpSocket) -> Self {
        let (over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let (is_over, notes) = (Arc::clone(&over), Arc::clone(&seen));
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                notes.turn(&socket);
            }
        });
        Self {
            way,
            over,
            seen,
            thread: Some(thread),
        }
    }

    fn refused(&self) -> u64 {
        self.seen.refused.load(Ordering::Relaxed)
    }

    fn sent(&self) -> u64 {
        self.seen.sent.load(Ordering::Relaxed)
    }

    /// Waits until a datagram that is sent from now on is answered: by which server, and after how long.
    fn answered(&self) -> (String, Duration) {
        let began = Instant::now();
        *self.seen.last.lock().unwrap() = None;
        let mut name = None;
        wait("an answer to the stream", || {
            name.clone_from(&self.seen.last.lock().unwrap());
            name.is_some()
        });
        (name.unwrap(), began.elapsed())
    }

    /// Asserts that the server `name` answers within moments, and no other from then on.
    fn moves_to(&self, name: &str) {
        let began = Instant::now();
        wait(&format!("the stream {} to move", self.way), || {
            self.answered().0 == name
        });
        assert!(
            began.elapsed() < MOMENTS,
            "{name} answered {} after {:?}",
            self.way,
            began.elapsed()
        );
        let goal = self.sent() + 50;
        wait(&format!("the stream {} to go on", self.way), || {
            assert_eq!(self.answered().0, name, "{}", self.way);
            self.sent() > goal
        });
    }
}

impl Stream {
    /// Asserts that its datagrams are refused within moments.
    fn is_refused(&self) {
        let before = self.refused();
        let began = Instant::now();
        wait(&format!("refusals {}", self.way), || {
            self.refused() > before + 10
        });
        let took = began.elapsed();
        assert!(took < MOMENTS, "refused {} after {took:?}", self.way);
    }
}

impl Seen {
    fn turn(&self, socket: &UdpSocket) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let asked = ask_connected(socket);
        match asked {
            Ok(answer) => *self.last.lock().unwrap() = Some(answer.name),
            Err(error) if is_refusal(&error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }
}

/// A pod gets an ICMP error, the node's own system call fails.
fn is_refusal(error: &io::Error) -> bool {
    [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied].contains(&error.kind())
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn connected(sockets: &Sockets, to: SocketAddr) -> UdpSocket {
    let socket = sockets.datagrams(to).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// A connected socket whose flow goes to the server `name`.
fn connected_to(sockets: &Sockets, to: SocketAddr, name: &str) -> UdpSocket {
    first(|| {
        let socket = connected(sockets, to);
        let is_right = ask_connected(&socket).is_ok_and(|answer| answer.name == name);
        is_right.then_some(socket)
    })
}

/// A socket that is not connected, whose flow goes to the server `name`: one whose port was that of a socket of an earlier test may have its flow.
fn loose(sockets: &Sockets, to: SocketAddr, name: &str) -> UdpSocket {
    first(|| {
        let socket = sockets.datagrams(to).unwrap();
        let is_right = ask_from(&socket, to, 9).is_ok_and(|answer| answer.name == name);
        is_right.then_some(socket)
    })
}

/// The first socket that is opened with a flow to its backend.
fn first(open: impl Fn() -> Option<UdpSocket>) -> UdpSocket {
    let mut socket = None;
    wait("a flow to that backend", || {
        socket = open();
        socket.is_some()
    });
    socket.unwrap()
}

/// A service with one backend, and clients that use it without pause.
struct Scaled {
    service: Service,
    streams: [Stream; 4],
    /// A socket that is not connected.
    loose: UdpSocket,
}

impl Scaled {
    const VIP: &str = "fd00:20::51";
    const NODE_PORT: u16 = 30_051;

    /// The backend is the pod 2a, and all clients have been answered by it.
    fn begin(cluster: &mut Cluster) -> Self {
        let service = service("scaled", &[Self::VIP], POD_PORT).node_port(Self::NODE_PORT);
        cluster.apply(&[service.clone().to(&[cluster.end(1, 0)])]);
        let vip = at(Self::VIP, 80);
        let port = SocketAddr::new(cluster.nodes[0].address(), Self::NODE_PORT);
        let streams = [
            ("from outside", Origin::Outside, port),
            ("by a pod's packets", Origin::PodPackets, vip),
            ("by a pod's socket", Origin::PodSocket, vip),
            ("by the node's socket", Origin::NodeSocket, vip),
        ]
        .map(|(way, from, to)| Stream::start(way, connected(cluster.sockets(from), to)));
        let loose = loose(cluster.sockets(Origin::PodSocket), vip, "2a");
        let it = Self {
            service,
            streams,
            loose,
        };
        it.is_answered_by("2a");
        it
    }

    /// Replaces the backends.
    fn scale(&self, cluster: &mut Cluster, ends: &[End]) {
        cluster.apply(&[self.service.clone().to(ends)]);
    }

    fn is_refused(&self) {
        for stream in &self.streams {
            stream.is_refused();
        }
    }

    fn moves_to(&self, name: &str) {
        for stream in &self.streams {
            stream.moves_to(name);
        }
    }

    fn is_answered_by(&self, name: &str) {
        self.moves_to(name);
        self.asks_unconnected(name);
    }

    fn asks_unconnected(&self, name: &str) {
        let answer = ask_from(&self.loose, at(Self::VIP, 80), 9).unwrap();
        assert_eq!(answer.name, name);
    }
}

/// Kubernetes 139628.
mod a_service_scaled_to_zero {
    use super::*;

    #[test]
    fn has_answered_streams_of_datagrams() {
        let mut it = SERVING.lease();
        Scaled::begin(&mut it.cluster);
    }

    #[test]
    fn refuses_them() {
        let mut it = SERVING.lease();
        let scaled = Scaled::begin(&mut it.cluster);
        scaled.scale(&mut it.cluster, &[]);
        scaled.is_refused();
    }

    #[test]
    fn has_them_reach_its_next_backend_within_moments() {
        let mut it = SERVING.lease();
        let scaled = Scaled::begin(&mut it.cluster);
        scaled.scale(&mut it.cluster, &[]);
        scaled.is_refused();
        let next = it.cluster.end(1, 1);
        scaled.scale(&mut it.cluster, &[next]);
        scaled.moves_to("2b");
    }

    #[test]
    fn has_an_unconnected_socket_reach_its_next_backend() {
        let mut it = SERVING.lease();
        let scaled = Scaled::begin(&mut it.cluster);
        scaled.scale(&mut it.cluster, &[]);
        let next = it.cluster.end(1, 1);
        scaled.scale(&mut it.cluster, &[next]);
        scaled.asks_unconnected("2b");
    }

    #[test]
    fn has_streams_follow_a_backend_that_comes_back() {
        let mut it = SERVING.lease();
        let scaled = Scaled::begin(&mut it.cluster);
        let [first, next] = [0, 1].map(|pod| it.cluster.end(1, pod));
        scaled.scale(&mut it.cluster, &[]);
        scaled.is_refused();
        scaled.scale(&mut it.cluster, &[next]);
        scaled.moves_to("2b");
        scaled.scale(&mut it.cluster, &[first]);
        scaled.moves_to("2a");
    }
}

/// Cilium 48244: `gone` is the pod that is deleted, `stays` the one beside it, by node and number.
fn check_connected([old, new]: [&str; 2], gone: (usize, usize), stays: (usize, usize)) {
    let mut it = SERVING.lease();
    let [gone, stays] = [gone, stays].map(|(node, pod)| it.cluster.end(node, pod));
    let vip = at("fd00:20::52", 80);
    let pinned = service("pinned", &["fd00:20::52"], POD_PORT);
    it.cluster
        .apply(&[pinned.clone().to(&[gone, stays.clone()])]);
    let sockets = [Origin::PodSocket, Origin::PodPackets, Origin::NodeSocket].map(|from| {
        let sockets = it.cluster.sockets(from);
        (from, connected_to(sockets, vip, old))
    });
    it.cluster.apply(&[pinned.to(&[stays])]);
    for (from, socket) in &sockets {
        let began = Instant::now();
        let outcome = ask_connected(socket);
        let took = began.elapsed();
        assert!(took < MOMENTS, "{from:?}: {outcome:?} after {took:?}");
        match outcome {
            Ok(answer) => assert_eq!((answer.name.as_str(), answer.from), (new, vip), "{from:?}"),
            Err(error) => assert!(is_refusal(&error), "{from:?}: {error}"),
        }
        let answer = ask_connected(socket).unwrap();
        assert_eq!((answer.name.as_str(), answer.from), (new, vip), "{from:?}");
    }
}

by_each_way! { a_connected_socket_leaves_a_deleted_backend, check_connected:
    of_the_other_node_for_one_beside_it(["2a", "2b"], (1, 0), (1, 1));
    of_the_other_node_for_one_of_its_own_node(["2a", "1b"], (1, 0), (0, 1));
    of_its_own_node_for_one_of_the_other_node(["1b", "2a"], (0, 1), (1, 0));
}

/// Cilium 27726: the pods 2a and 2b serve one service, and 2a another one too.
struct Pair {
    leaves: Service,
    other: End,
    ways: [(&'static str, Sockets, [SocketAddr; 2]); 3],
}

impl Pair {
    fn begin(cluster: &mut Cluster) -> Self {
        let (both, other) = (cluster.end(1, 0), cluster.end(1, 1));
        let leaves = service("leaves", &["fd00:20::53"], POD_PORT).node_port(30_053);
        let stays = service("stays", &["fd00:20::54"], POD_PORT).node_port(30_054);
        let pair = [both.clone(), other.clone()];
        cluster.apply(&[leaves.clone().to(&pair), stays.to(&[both])]);
        let node = cluster.nodes[0].address();
        let ports = [SocketAddr::new(node, 30_053), SocketAddr::new(node, 30_054)];
        let vips = [at("fd00:20::53", 80), at("fd00:20::54", 80)];
        let ways = [
            ("from outside", Origin::Outside, ports),
            ("by a pod's packets", Origin::PodPackets, vips),
            ("by a pod's socket", Origin::PodSocket, vips),
        ];
        let ways = ways.map(|(way, from, to)| (way, cluster.sockets(from).clone(), to));
        Self {
            leaves,
            other,
            ways,
        }
    }

    /// Streams of datagrams to 2a by both services, each way.
    fn streams(&self) -> Vec<[Stream; 2]> {
        let ways = self.ways.iter();
        ways.map(|(way, sockets, to)| {
            to.map(|to| Stream::start(way, connected_to(sockets, to, "2a")))
        })
        .collect()
    }

    /// Connections that are used without pause, by the service that 2a stays in.
    fn connections(&self) -> Vec<Load> {
        let ways = self.ways.iter();
        let loads: Vec<_> = ways
            .map(|(way, sockets, [_, staying])| Load::questions(way, sockets, *staying))
            .collect();
        for load in &loads {
            load.go_on(100);
        }
        loads
    }

    /// Removes 2a from one of the services.
    fn part(&self, cluster: &mut Cluster) {
        let other = std::slice::from_ref(&self.other);
        cluster.apply(&[self.leaves.clone().to(other)]);
    }
}

mod a_backend_removed_from_one_service {
    use super::*;

    #[test]
    fn stays_in_another() {
        let mut it = SERVING.lease();
        let pair = Pair::begin(&mut it.cluster);
        let (streams, _connections) = (pair.streams(), pair.connections());
        pair.part(&mut it.cluster);
        for [leaving, staying] in &streams {
            leaving.moves_to("2b");
            staying.moves_to("2a");
        }
    }

    #[test]
    fn keeps_the_connections_of_another() {
        let mut it = SERVING.lease();
        let pair = Pair::begin(&mut it.cluster);
        let (_streams, connections) = (pair.streams(), pair.connections());
        pair.part(&mut it.cluster);
        for load in connections {
            load.go_on(100);
            let outcome = load.end();
            assert_eq!(outcome.failed, 0, "{:?}", outcome.failures);
        }
    }
}

/// The pod 2a had all connections, and is in this condition now; 2b is ready.
struct Ending {
    ways: [(&'static str, Sockets, SocketAddr); 3],
    streams: Vec<TcpStream>,
}

impl Ending {
    fn begin(cluster: &mut Cluster, condition: Condition) -> Self {
        let vip = at("fd00:20::55", 80);
        let port = SocketAddr::new(cluster.nodes[0].address(), 30_055);
        let ends = service("ends", &["fd00:20::55"], POD_PORT).node_port(30_055);
        let (old, new) = (cluster.end(1, 0), cluster.end(1, 1));
        cluster.apply(&[ends.clone().to(std::slice::from_ref(&old))]);
        let ways = [
            ("from outside", Origin::Outside, port),
            ("by a pod's packets", Origin::PodPackets, vip),
            ("by a pod's socket", Origin::PodSocket, vip),
        ];
        let ways = ways.map(|(way, from, to)| (way, cluster.sockets(from).clone(), to));
        let streams = ways.iter().map(|(_, sockets, to)| open(sockets, *to));
        let streams = streams.collect();
        cluster.apply(&[ends.to(&[old.with(condition), new])]);
        Self { ways, streams }
    }
}

fn check_connections(condition: Condition) {
    let mut it = SERVING.lease();
    let mut ending = Ending::begin(&mut it.cluster, condition);
    for ((way, ..), stream) in ending.ways.iter().zip(&mut ending.streams) {
        echo(stream).unwrap_or_else(|error| panic!("{way}: {error}"));
    }
}

fn check_new_connections(condition: Condition) {
    let mut it = SERVING.lease();
    let ending = Ending::begin(&mut it.cluster, condition);
    for (way, sockets, to) in &ending.ways {
        for _ in 0..8 {
            assert_eq!(tcp(sockets, *to).unwrap().name, "2b", "{way}");
        }
    }
}

by_each_way! { connections_go_on, check_connections:
    to_a_backend_that_terminates(Condition::Terminating);
    to_a_backend_that_is_not_ready_for_a_while(Condition::NotReady);
}

by_each_way! { new_connections_avoid_a_backend, check_new_connections:
    that_terminates(Condition::Terminating);
    that_is_not_ready_for_a_while(Condition::NotReady);
}

/// An open connection that has been used.
fn open(sockets: &Sockets, to: SocketAddr) -> TcpStream {
    let mut stream = sockets.dial(to).unwrap();
    let mut byte = [0; 1];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
    }
    echo(&mut stream).unwrap();
    stream
}

fn echo(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"still there?")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)
}

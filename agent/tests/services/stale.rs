//! Flows whose backend goes: Kubernetes 139628, Cilium 48244 and Cilium 27726, as their reporters met them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::acts::Acts;
use crate::checks::at;
use crate::client::{ask_connected, ask_from, tcp};
use crate::load::Load;
use crate::manifests::{Condition, End, service};
use crate::place::Place;
use crate::server::{Server, servers};
use crate::stage::{POD_PORT, Stage, wait};

/// A stale flow must not live longer than this.
const MOMENTS: Duration = Duration::from_secs(1);

pub(crate) struct Stale {
    pub(crate) stage: Stage,
    _servers: Vec<Server>,
}

/// A client that never stops: one socket, one source port, a datagram each millisecond.
struct Stream {
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
    fn start(socket: UdpSocket) -> Self {
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

    /// Waits until somebody answers a datagram that is sent from now on; who, and after how long.
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

    /// Asserts that `name` is who answers within moments, and who alone answers from then on.
    fn moves_to(&self, name: &str) {
        let began = Instant::now();
        wait("the stream to move", || self.answered().0 == name);
        assert!(
            began.elapsed() < MOMENTS,
            "{name} answered after {:?}",
            began.elapsed()
        );
        let goal = self.sent() + 50;
        wait("the stream to go on", || {
            assert_eq!(self.answered().0, name);
            self.sent() > goal
        });
    }
}

impl Seen {
    fn turn(&self, socket: &UdpSocket) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let asked = ask_connected(socket);
        match asked {
            Ok(heard) => *self.last.lock().unwrap() = Some(heard.name),
            Err(error) if is_refusal(&error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }
}

/// A pod is refused by the network, the node by the kernel itself.
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

fn connected(place: &Place, to: SocketAddr) -> UdpSocket {
    let socket = place.datagrams(to).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// A connected socket whose flow leads to `name`.
fn connected_to(place: &Place, to: SocketAddr, name: &str) -> UdpSocket {
    let mut found = None;
    wait("a flow to that backend", || {
        let socket = connected(place, to);
        let is_right = ask_connected(&socket).is_ok_and(|heard| heard.name == name);
        found = is_right.then_some(socket);
        found.is_some()
    });
    found.unwrap()
}

impl Stale {
    pub(crate) fn set() -> Self {
        let stage = Stage::set();
        let servers = servers(&stage);
        Self {
            stage,
            _servers: servers,
        }
    }

    pub(crate) fn play(&mut self, acts: &mut Acts) {
        self.scaled_to_zero(acts);
        self.pinned(acts);
        self.shared(acts);
        self.ending(acts);
    }

    fn end(&self, node: usize, pod: usize) -> End {
        self.stage.pod(node, pod).end.clone()
    }

    /// Kubernetes 139628.
    fn scaled_to_zero(&mut self, acts: &mut Acts) {
        let (vip, port) = (
            at("fd00:20::51", 80),
            SocketAddr::new(self.stage.nodes[0].address(), 30_051),
        );
        let scaled = service("scaled", &["fd00:20::51"], POD_PORT).node_port(30_051);
        let (old, new) = (self.end(1, 0), self.end(1, 1));
        self.stage
            .apply(&[scaled.clone().to(std::slice::from_ref(&old))]);
        let pod = self.stage.pod(0, 0);
        let streams = [
            ("from outside", connected(&self.stage.client, port)),
            ("by a pod's packets", connected(&pod.bare, vip)),
            ("by a pod's socket", connected(&pod.place, vip)),
            (
                "by the node's socket",
                connected(&self.stage.nodes[0].place, vip),
            ),
        ]
        .map(|(way, socket)| (way, Stream::start(socket)));
        let loose = self.stage.pod(0, 0).place.datagrams(vip).unwrap();
        acts.play("a stream of datagrams is answered", || {
            for (_, stream) in &streams {
                stream.moves_to("2a");
            }
            assert_eq!(ask_from(&loose, vip, 9).unwrap().name, "2a");
        });
        self.stage.apply(&[scaled.clone().to(&[])]);
        for (way, stream) in &streams {
            acts.play(
                &format!("a stream to a service scaled to zero is refused: {way}"),
                || {
                    let before = stream.refused();
                    let began = Instant::now();
                    wait("refusals", || stream.refused() > before + 10);
                    assert!(began.elapsed() < MOMENTS, "{:?}", began.elapsed());
                },
            );
        }
        self.stage.apply(&[scaled.clone().to(&[new])]);
        for (way, stream) in &streams {
            acts.play(
                &format!("a stream reaches the new backend within moments: {way}"),
                || {
                    stream.moves_to("2b");
                },
            );
        }
        acts.play("an unconnected socket reaches the new backend", || {
            assert_eq!(ask_from(&loose, vip, 9).unwrap().name, "2b");
        });
        self.stage.apply(&[scaled.to(&[old])]);
        for (way, stream) in &streams {
            acts.play(&format!("a stream moves with its backend: {way}"), || {
                stream.moves_to("2a");
            });
        }
    }

    /// Cilium 48244.
    fn pinned(&mut self, acts: &mut Acts) {
        for (names, gone, stays) in [
            (["2a", "2b"], (1, 0), (1, 1)),
            (["2a", "1b"], (1, 0), (0, 1)),
            (["1b", "2a"], (0, 1), (1, 0)),
        ] {
            self.pinned_to(
                acts,
                names,
                [gone, stays].map(|(node, pod)| self.end(node, pod)),
            );
        }
    }

    fn pinned_to(&mut self, acts: &mut Acts, [old, new]: [&str; 2], [gone, stays]: [End; 2]) {
        let vip = at("fd00:20::52", 80);
        let pinned = service("pinned", &["fd00:20::52"], POD_PORT);
        self.stage
            .apply(&[pinned.clone().to(&[gone, stays.clone()])]);
        let places = [
            ("a pod's socket", self.stage.pod(0, 0).place.clone()),
            ("a pod's packets", self.stage.pod(0, 0).bare.clone()),
            ("the node's socket", self.stage.nodes[0].place.clone()),
        ];
        let sockets = places.map(|(way, place)| (way, connected_to(&place, vip, old)));
        self.stage.apply(&[pinned.to(&[stays])]);
        for (way, socket) in &sockets {
            acts.play(
                &format!("a connected socket leaves a deleted backend, {old} for {new}: {way}"),
                || {
                    let began = Instant::now();
                    let outcome = ask_connected(socket);
                    assert!(
                        began.elapsed() < MOMENTS,
                        "{outcome:?} after {:?}",
                        began.elapsed()
                    );
                    match outcome {
                        Ok(heard) => assert_eq!((heard.name.as_str(), heard.from), (new, vip)),
                        Err(error) => assert!(is_refusal(&error), "{error}"),
                    }
                    let heard = ask_connected(socket).unwrap();
                    assert_eq!((heard.name.as_str(), heard.from), (new, vip));
                },
            );
        }
    }

    /// Cilium 27726.
    fn shared(&mut self, acts: &mut Acts) {
        let (both, other) = (self.end(1, 0), self.end(1, 1));
        let leaves = service("leaves", &["fd00:20::53"], POD_PORT).node_port(30_053);
        let stays = service("stays", &["fd00:20::54"], POD_PORT).node_port(30_054);
        let pair = [both.clone(), other.clone()];
        self.stage
            .apply(&[leaves.clone().to(&pair), stays.clone().to(&[both])]);
        let node = self.stage.nodes[0].address();
        let (client, pod) = (&self.stage.client, self.stage.pod(0, 0));
        let ports = [SocketAddr::new(node, 30_053), SocketAddr::new(node, 30_054)];
        let vips = [at("fd00:20::53", 80), at("fd00:20::54", 80)];
        let ways = [
            ("from outside", client.clone(), ports),
            ("by a pod's packets", pod.bare.clone(), vips),
            ("by a pod's socket", pod.place.clone(), vips),
        ];
        let streams = ways.clone().map(|(way, place, [leaving, staying])| {
            let [leaving, staying] =
                [leaving, staying].map(|to| Stream::start(connected_to(&place, to, "2a")));
            (way, leaving, staying)
        });
        let talks: Vec<_> = ways
            .iter()
            .map(|(way, place, [_, staying])| Load::questions(way, place, *staying))
            .collect();
        for talk in &talks {
            talk.go_on(100);
        }
        self.stage.apply(&[leaves.to(&[other])]);
        for (way, leaving, staying) in &streams {
            acts.play(
                &format!("a backend removed from one service stays in another: {way}"),
                || {
                    leaving.moves_to("2b");
                    staying.moves_to("2a");
                },
            );
        }
        for talk in talks {
            acts.play(
                "connections through the other service notice nothing",
                || {
                    talk.go_on(100);
                    let outcome = talk.end();
                    assert_eq!(outcome.failed, 0, "{:?}", outcome.told);
                },
            );
        }
    }

    /// A backend that ends keeps its connections until it is gone, and gets no new ones.
    fn ending(&mut self, acts: &mut Acts) {
        let (vip, port) = (
            at("fd00:20::55", 80),
            SocketAddr::new(self.stage.nodes[0].address(), 30_055),
        );
        let ends = service("ends", &["fd00:20::55"], POD_PORT).node_port(30_055);
        let (old, new) = (self.end(1, 0), self.end(1, 1));
        for (condition, name) in [
            (Condition::Terminating, "terminates"),
            (Condition::NotReady, "is not ready for a while"),
        ] {
            self.stage
                .apply(&[ends.clone().to(std::slice::from_ref(&old))]);
            let pod = self.stage.pod(0, 0);
            let ways = [
                ("from outside", self.stage.client.clone(), port),
                ("by a pod's packets", pod.bare.clone(), vip),
                ("by a pod's socket", pod.place.clone(), vip),
            ];
            let streams: Vec<_> = ways
                .iter()
                .map(|(way, place, to)| (*way, open(place, *to)))
                .collect();
            self.stage
                .apply(&[ends.clone().to(&[old.with(condition), new.clone()])]);
            for (way, mut stream) in streams {
                acts.play(
                    &format!("connections to a backend that {name} go on: {way}"),
                    || echo(&mut stream).unwrap(),
                );
            }
            for (way, place, to) in &ways {
                acts.play(
                    &format!("new connections go past a backend that {name}: {way}"),
                    || {
                        for _ in 0..8 {
                            assert_eq!(tcp(place, *to).unwrap().name, "2b");
                        }
                    },
                );
            }
        }
    }
}

fn open(place: &Place, to: SocketAddr) -> TcpStream {
    let mut stream = place.dial(to).unwrap();
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

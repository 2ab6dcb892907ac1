//! A process of the node that connects and sends for real, and the servers that it may reach.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use dormouse_agent_services::Protocol;
use dormouse_rig::{PATIENCE, ip, node::python_in};
use rustix::event::{PollFd, PollFlags, poll};

/// Executes each line, and prints the sender of the reply and the peer's address as the socket sees it.
const ASKER: &str = "
import socket, sys
for line in sys.stdin:
    protocol, how, address, port = line.split()
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == 'TCP' else socket.SOCK_DGRAM
    with socket.socket(family, kind) as s:
        s.settimeout(5)
        try:
            if how == 'connect':
                s.connect((address, int(port)))
                if protocol == 'UDP': s.send(b'?')
                said, peer = s.recv(99), s.getpeername()
            else:
                s.sendto(b'?', (address, int(port)))
                said, peer = s.recvfrom(99)
            print(said.decode(), peer[0], peer[1], flush=True)
        except OSError as error:
            print('error', error.errno, flush=True)
";

/// How a process asks for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) protocol: Protocol,
    /// A datagram from a socket that is not connected.
    pub(crate) unconnected: bool,
    /// IPv4 by an IPv6 socket.
    pub(crate) mapped: bool,
}

impl Call {
    /// All ways to ask for the address.
    pub(crate) fn all(protocol: Protocol, to: IpAddr) -> impl Iterator<Item = Self> {
        let unconnected = [false, true].into_iter();
        let unconnected = unconnected.filter(move |it| !it || protocol == Protocol::Udp);
        unconnected.flat_map(move |unconnected| {
            let mapped = [false, true]
                .into_iter()
                .filter(move |it| !it || to.is_ipv4());
            mapped.map(move |mapped| Self {
                protocol,
                unconnected,
                mapped,
            })
        })
    }
}

/// What came of a call: who answered, and who that is for the caller; or the error's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    From { real: String, believed: SocketAddr },
    Error(String),
}

/// The process, in the node's network namespace and in its cgroup.
pub(crate) struct Asker {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Asker {
    pub(crate) fn new(cgroup: &Path) -> Self {
        let mut process = python_in(cgroup, ASKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh and python3 are installed");
        Self {
            orders: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    pub(crate) fn ask(&mut self, call: Call, to: SocketAddr, servers: &Servers) -> Answer {
        let address = match to.ip() {
            IpAddr::V4(address) if call.mapped => address.to_ipv6_mapped().into(),
            address => address,
        };
        let how = if call.unconnected { "send" } else { "connect" };
        let order = format!("{} {how} {address} {}\n", call.protocol, to.port());
        self.orders.write_all(order.as_bytes()).unwrap();
        servers.answer_until(self.answers.get_ref().as_fd());
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["error", number] => Answer::Error(number.to_owned()),
            [real, peer, port] => {
                let peer: IpAddr = peer.parse().unwrap();
                assert_eq!(
                    peer.is_ipv6(),
                    call.mapped || to.is_ipv6(),
                    "the socket's family"
                );
                Answer::From {
                    real: real.to_owned(),
                    believed: SocketAddr::new(peer.to_canonical(), port.parse().unwrap()),
                }
            }
            _ => panic!("the asker said {line:?}"),
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

enum Server {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// Servers that reply with their own address, until the network namespace is removed.
#[derive(Default)]
pub(crate) struct Servers {
    all: BTreeMap<(String, Protocol), Server>,
    addresses: Vec<IpAddr>,
}

impl Servers {
    /// Serves at a backend's address.
    pub(crate) fn open(&mut self, at: SocketAddr, protocol: Protocol) {
        if !self.addresses.contains(&at.ip()) {
            let options = if at.is_ipv6() {
                "/128 dev lo nodad"
            } else {
                "/32 dev lo"
            };
            ip(&format!("addr add {}{options}", at.ip()));
            await_route(at.ip());
            self.addresses.push(at.ip());
        }
        let open = || match protocol {
            Protocol::Udp => Server::Udp(UdpSocket::bind(at).unwrap()),
            _ => Server::Tcp(TcpListener::bind(at).unwrap()),
        };
        self.all
            .entry((at.to_string(), protocol))
            .or_insert_with(open);
    }

    /// Answers until there is something to be read from `until`.
    fn answer_until(&self, until: BorrowedFd<'_>) {
        loop {
            let others = self.all.values().map(Server::as_fd);
            let all: Vec<_> = std::iter::once(until).chain(others).collect();
            let mut polled: Vec<_> = all
                .iter()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
                .collect();
            poll(&mut polled, None).unwrap();
            let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((name, server), _) in self.all.iter().zip(&ready[1..]).filter(|it| *it.1) {
                server.answer(&name.0);
            }
            if ready[0] {
                return;
            }
        }
    }
}

/// The kernel makes the route to a new IPv6 address a little later than the address: waits until a datagram arrives.
fn await_route(to: IpAddr) {
    let patience = Instant::now() + PATIENCE;
    let arrives = || {
        let probe = UdpSocket::bind((to, 0))?;
        probe.set_read_timeout(Some(Duration::from_millis(5)))?;
        probe.send_to(b"?", probe.local_addr()?)?;
        probe.recv(&mut [0])
    };
    while let Err(error) = arrives() {
        assert!(Instant::now() < patience, "no way to {to}: {error}");
    }
}

impl Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }

    fn answer(&self, name: &str) {
        match self {
            Self::Tcp(listener) => {
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(name.as_bytes()).unwrap();
            }
            Self::Udp(socket) => {
                let (_, client) = socket.recv_from(&mut [0]).unwrap();
                socket.send_to(name.as_bytes(), client).unwrap();
            }
        }
    }
}

//! One network namespace, and what tests do in it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::names;
use crate::wait::wait;

/// How long a connection or a packet may take. Only a failure is this slow.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What a client sends, and a server sends back.
const WORD: &[u8; 5] = b"hello";

/// A network namespace; removed when dropped.
#[derive(Debug)]
pub struct Netns(dormouse_world::Netns);

impl Netns {
    /// An empty namespace with a name of its own that ends in `role`. Its loopback device is down, as a container
    /// runtime leaves it.
    pub fn new(role: &str) -> Self {
        Self::named(&names::fresh(role))
    }

    /// The same with this name.
    pub fn named(name: &str) -> Self {
        Self(dormouse_world::Netns::create(name).unwrap())
    }

    /// The name, as `ip -n` takes it.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The file that names it, as `CNI_NETNS` takes it.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The namespace, held open.
    pub fn file(&self) -> &File {
        self.0.file()
    }

    /// Runs `work` inside.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.enter(work).unwrap()
    }

    /// Runs `work` inside; an error ends the test.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> T {
        self.enter(work).unwrap()
    }

    /// Runs a command inside, its arguments separated by single spaces; returns what it wrote.
    pub fn run(&self, program: &str, arguments: &str) -> String {
        run_in(self.path(), program, arguments)
    }

    /// Runs `ip` inside; returns what it wrote.
    pub fn ip(&self, arguments: &str) -> String {
        self.run("ip", arguments)
    }

    /// Runs `tc` inside; returns what it wrote.
    pub fn tc(&self, arguments: &str) -> String {
        self.run("tc", arguments)
    }

    /// A setting of the kernel, by its path below `/proc/sys/net`.
    pub fn sysctl(&self, name: &str) -> String {
        let text = self.inside(|| std::fs::read_to_string(format!("/proc/sys/net/{name}")));
        text.trim().to_owned()
    }

    /// Sets one.
    pub fn set_sysctl(&self, name: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{name}"), value));
    }

    /// The names of the interfaces inside.
    pub fn links(&self) -> Vec<String> {
        self.inside(|| Ok(links()?))
    }

    /// Joins an interface here with one there, both up: (name, link-layer address).
    pub fn cable(&self, here: (&str, &str), there: &Self, peer: (&str, &str)) {
        self.ip(&format!(
            "link add {} address {} type veth peer name {} address {} netns {}",
            here.0,
            here.1,
            peer.0,
            peer.1,
            there.name()
        ));
        self.ip(&format!("link set {} up", here.0));
        there.ip(&format!("link set {} up", peer.0));
    }

    /// The link-layer address that a neighbour is known by, if it is.
    pub fn neighbor(&self, address: Ipv6Addr) -> Option<String> {
        let known = self.ip(&format!("-6 neighbour show {address}"));
        let mut words = known.split_whitespace();
        words.find(|word| *word == "lladdr")?;
        words.next().map(str::to_owned)
    }

    /// Sends a datagram from an address of its own.
    pub fn send(&self, from: impl Into<IpAddr>, to: SocketAddr) -> io::Result<usize> {
        let from = from.into();
        self.enter(|| UdpSocket::bind((from, 0))?.send_to(WORD, to))
    }

    /// A socket for datagrams of both families, on a free port.
    pub fn listen(&self) -> UdpSocket {
        let socket = self.inside(|| UdpSocket::bind(("::", 0)));
        socket.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
        socket
    }
}

/// The names of the interfaces in the calling thread's namespace.
pub fn links() -> nix::Result<Vec<String>> {
    let links = nix::net::if_::if_nameindex()?;
    let name = |link: &nix::net::if_::Interface| link.name().to_string_lossy().into_owned();
    Ok(links.iter().map(name).collect())
}

/// Runs a command in a namespace that is named by a file; returns what it wrote.
pub(crate) fn run_in(netns: &Path, program: &str, arguments: &str) -> String {
    let run = || Command::new(program).args(arguments.split(' ')).output();
    let output = dormouse_world::enter(netns, run).unwrap();
    written(program, arguments, output)
}

fn written(program: &str, arguments: &str, output: io::Result<std::process::Output>) -> String {
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}: cargo xtask setup"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `ip` in the calling thread's namespace; returns what it wrote.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    written("ip", arguments, output)
}

/// Connects from one namespace to an address in another, and has a word carried both ways. Returns the client's address
/// as the server sees it.
pub fn dial(from: &Netns, server: &Netns, to: impl Into<IpAddr>) -> io::Result<IpAddr> {
    let listener = server.inside(|| TcpListener::bind(("::", 0)));
    let to = SocketAddr::new(to.into(), listener.local_addr()?.port());
    let mut dialled = from.enter(|| TcpStream::connect_timeout(&to, ANSWER_LIMIT))?;
    dialled.set_read_timeout(Some(ANSWER_LIMIT))?;
    dialled.write_all(WORD)?;
    listener.set_nonblocking(true)?;
    let mut accepted = None;
    wait("the connection at its other end", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (mut accepted, peer) = accepted.unwrap();
    accepted.set_nonblocking(false)?;
    accepted.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut word = [0; WORD.len()];
    accepted.read_exact(&mut word)?;
    accepted.write_all(&word)?;
    dialled.read_exact(&mut word)?;
    assert_eq!(word, *WORD);
    Ok(peer.ip().to_canonical())
}

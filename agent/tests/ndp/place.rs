//! Network namespaces and what is found in them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dormouse_agent_sys::netns;

/// How long anything may take that comes by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How long a connection may take.
const CONNECTED: Duration = Duration::from_secs(5);
const WORD: &[u8; 5] = b"hello";

/// A namespace that is removed with its value.
pub(crate) struct Place {
    name: String,
    path: PathBuf,
    file: File,
}

impl Place {
    /// An empty one, with loopback up.
    pub(crate) fn new(role: &str) -> Self {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "run as root: sudo -E cargo test -p dormouse-agent --test ndp"
        );
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("dmn{}-{number}-{role}", std::process::id());
        let path = Path::new("/run/netns").join(&name);
        netns::remove(&path).unwrap();
        netns::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        let place = Self { name, path, file };
        place.ip("link set lo up");
        place
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Runs `work` inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> T {
        netns::enter(self.file.as_fd(), work).unwrap()
    }

    /// Runs a command inside and returns what it wrote.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.inside(|| Command::new(program).args(arguments).output());
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `ip` inside and returns what it wrote.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.run("ip", &words.split(' ').collect::<Vec<_>>())
    }

    /// A setting of IPv6.
    pub(crate) fn sysctl(&self, name: &str) -> String {
        let path = format!("/proc/sys/net/ipv6/{name}");
        let text = self.inside(|| std::fs::read_to_string(path));
        text.trim().to_owned()
    }

    pub(crate) fn set_sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/ipv6/{name}");
        self.inside(|| std::fs::write(path, value));
    }

    /// Joins an interface here with one there, both up: (name, link-layer address).
    pub(crate) fn cable(&self, here: (&str, &str), there: &Self, peer: (&str, &str)) {
        self.ip(&format!(
            "link add {} address {} type veth peer name {} address {} netns {}",
            here.0, here.1, peer.0, peer.1, there.name
        ));
        self.ip(&format!("link set {} up", here.0));
        there.ip(&format!("link set {} up", peer.0));
    }

    /// The link-layer address that a neighbour is known by, if it is.
    pub(crate) fn neighbor(&self, address: Ipv6Addr) -> Option<String> {
        let known = self.ip(&format!("-6 neighbour show {address}"));
        let mut words = known.split_whitespace();
        words.find(|word| *word == "lladdr")?;
        words.next().map(str::to_owned)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        netns::remove(&self.path).unwrap();
    }
}

/// Has a connection from one to the other's address carry a word; from which address it came.
pub(crate) fn dial(from: &Place, server: &Place, to: Ipv6Addr) -> io::Result<Ipv6Addr> {
    let listener = server.inside(|| TcpListener::bind(("::", 0)));
    let to = SocketAddr::from((to, listener.local_addr()?.port()));
    let mut dialled = from.inside(|| Ok(TcpStream::connect_timeout(&to, CONNECTED)))?;
    dialled.set_read_timeout(Some(CONNECTED))?;
    dialled.write_all(WORD)?;
    listener.set_nonblocking(true)?;
    let mut accepted = None;
    wait("the connection at its other end", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (mut accepted, peer) = accepted.unwrap();
    accepted.set_nonblocking(false)?;
    accepted.set_read_timeout(Some(CONNECTED))?;
    let mut word = [0; WORD.len()];
    accepted.read_exact(&mut word)?;
    accepted.write_all(&word)?;
    dialled.read_exact(&mut word)?;
    assert_eq!(word, *WORD);
    match peer {
        SocketAddr::V6(peer) => Ok(*peer.ip()),
        SocketAddr::V4(peer) => panic!("an IPv4 peer: {peer}"),
    }
}

/// Waits for a condition that comes by itself.
pub(crate) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

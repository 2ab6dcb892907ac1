//! A node for tests: a namespace with an uplink to a host outside, and the pod network in it, without socket and plugin.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_agent_pod::{LeaseKey, Network, NetworkConfig, NodePrefix, PodEntry, PodTable};
use dormouse_agent_sys::netns;
use dormouse_cni::message::{Wanted, Wired};

/// How long a packet may be under way.
const PACKET_LIMIT: Duration = Duration::from_secs(5);

/// A namespace that is removed with its value.
pub(crate) struct Netns {
    path: PathBuf,
    file: File,
}

impl Netns {
    fn create(name: &str) -> Self {
        let path = PathBuf::from(format!("/run/netns/{name}"));
        netns::remove(&path).unwrap();
        netns::create(&path).unwrap();
        Self {
            file: File::open(&path).unwrap(),
            path,
        }
    }

    /// Runs `work` inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::enter(self.file.as_fd(), || Ok(work())).unwrap()
    }

    /// Runs `ip` inside and returns what it wrote.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.run("ip", words)
    }

    /// Runs `tc` inside and returns what it wrote.
    pub(crate) fn tc(&self, words: &str) -> String {
        self.run("tc", words)
    }

    fn run(&self, program: &str, words: &str) -> String {
        let output = self.inside(|| Command::new(program).args(words.split(' ')).output());
        let output = output.unwrap();
        assert!(output.status.success(), "{program} {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends a datagram from an address of its own.
    pub(crate) fn send(&self, from: impl Into<IpAddr>, to: SocketAddr) -> io::Result<usize> {
        let from = from.into();
        self.inside(|| UdpSocket::bind((from, 0))?.send_to(b"hello", to))
    }

    /// Whether they are one and the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// Listens for datagrams.
    pub(crate) fn listen(&self) -> UdpSocket {
        let socket = self.inside(|| UdpSocket::bind(("::", 0))).unwrap();
        socket.set_read_timeout(Some(PACKET_LIMIT)).unwrap();
        socket
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        netns::remove(&self.path).unwrap();
    }
}

/// Records the pods that the network adds to the data path.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<PodEntry>>>);

impl PodTable for Recorder {
    fn add(&mut self, pod: PodEntry) -> io::Result<()> {
        self.remove(pod.address, None)?;
        self.0.lock().unwrap().push(pod);
        Ok(())
    }

    fn remove(&mut self, address: Ipv6Addr, _: Option<Ipv4Addr>) -> io::Result<()> {
        self.0.lock().unwrap().retain(|pod| pod.address != address);
        Ok(())
    }
}

impl Recorder {
    /// Every pod, by address.
    pub(crate) fn pods(&self) -> Vec<PodEntry> {
        let mut pods = self.0.lock().unwrap().clone();
        pods.sort_by_key(|pod| pod.address);
        pods
    }
}

/// The node.
pub(crate) struct Node {
    name: String,
    pub(crate) netns: Netns,
    pub(crate) outside: Netns,
    state: tempfile::TempDir,
}

impl Node {
    /// The node's own address, and that of a host on the uplink's link.
    pub(crate) const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 1);
    pub(crate) const OUTSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x100);
    /// The same host's IPv4 address, for nodes that have any.
    pub(crate) const OUTSIDE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

    /// Makes the namespaces. The host outside has a route to the node's prefix.
    pub(crate) fn start(name: &str) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "run as root: sudo -E cargo test -p dormouse-agent --test pods"
        );
        let name = format!("dmp{}-{name}", std::process::id());
        let netns = Netns::create(&format!("{name}-node"));
        let outside = Netns::create(&format!("{name}-out"));
        netns.ip(&format!(
            "link add up0 type veth peer name up0 netns {name}-out"
        ));
        for (netns, address) in [(&netns, Self::ADDRESS), (&outside, Self::OUTSIDE)] {
            netns.ip("link set lo up");
            netns.ip("link set up0 up");
            netns.ip(&format!("addr add {address}/64 dev up0 nodad"));
        }
        outside.ip(&format!(
            "route add {} via {}",
            Self::prefix(),
            Self::ADDRESS
        ));
        Self {
            name,
            netns,
            outside,
            state: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn prefix() -> NodePrefix {
        "2001:db8:d0:0:0:1::/96".parse().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.state.path()
    }

    /// Opens the pod network.
    pub(crate) fn open(&self, table: impl PodTable + 'static) -> Network {
        let config = NetworkConfig::new(Self::prefix(), self.folder().to_owned(), "up0");
        let open = || Network::open(config, Box::new(table)).map_err(|error| error.chain());
        self.netns.inside(open).unwrap()
    }

    /// Opens it with IPv4 addresses for pods, which the host outside routes to the node.
    pub(crate) fn open_dual(&self, table: impl PodTable + 'static) -> Network {
        self.netns.ip("addr add 198.51.100.1/24 dev up0");
        self.outside
            .ip(&format!("addr add {}/24 dev up0", Self::OUTSIDE4));
        self.outside.ip("route add 192.0.2.0/24 via 198.51.100.1");
        let mut config = NetworkConfig::new(Self::prefix(), self.folder().to_owned(), "up0");
        config.range4 = "192.0.2.0/24".parse().ok();
        let open = || Network::open(config, Box::new(table)).map_err(|error| error.chain());
        self.netns.inside(open).unwrap()
    }

    /// An empty namespace for a pod.
    pub(crate) fn pod(&self, name: &str) -> Netns {
        Netns::create(&format!("{}-{name}", self.name))
    }

    /// Wires a pod.
    pub(crate) fn add(&self, network: &Network, name: &str, pod: &Netns, wanted: &Wanted) -> Wired {
        let (key, netns) = (key(name), pod.file.as_fd());
        let add = || {
            let added = network.add(&key, netns, wanted);
            added.map_err(|error| error.chain())
        };
        self.netns.inside(add).unwrap()
    }

    /// Unwires it.
    pub(crate) fn del(&self, network: &Network, name: &str) {
        let key = key(name);
        let del = || network.del(&key).map_err(|error| error.chain());
        self.netns.inside(del).unwrap();
    }
}

fn key(container: &str) -> LeaseKey {
    LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    }
}

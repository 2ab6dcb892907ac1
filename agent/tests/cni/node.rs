//! A node for tests: a namespace with an uplink to a host outside, and an agent's network and socket in it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dormouse_agent::cni;
use dormouse_agent_pod::{Ipv4Range, Network, NetworkConfig, NodePrefix, PodEntry, PodTable};
use dormouse_agent_sys::netns;
use nix::sched::{CloneFlags, setns};
use tokio_util::sync::CancellationToken;

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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Runs `work` inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> T {
        netns::enter(self.file.as_fd(), work).unwrap()
    }

    /// Runs `ip` inside.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let status = self.inside(|| Command::new("ip").args(arguments).status());
        assert!(status.success(), "ip {arguments:?}");
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        netns::remove(&self.path).unwrap();
    }
}

/// Records the pods that the network adds to the data path.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<PodEntry>>>, Arc<AtomicBool>);

impl PodTable for Recorder {
    fn add(&mut self, pod: PodEntry) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(io::Error::other("the table is full"));
        }
        let mut pods = self.0.lock().unwrap();
        pods.retain(|p| p.address != pod.address);
        pods.push(pod);
        Ok(())
    }

    fn remove(&mut self, address: Ipv6Addr, _: Option<Ipv4Addr>) -> io::Result<()> {
        self.0.lock().unwrap().retain(|p| p.address != address);
        Ok(())
    }
}

struct Agent {
    network: Arc<Network>,
    shutdown: CancellationToken,
    thread: JoinHandle<()>,
}

/// The node.
pub(crate) struct Node {
    name: String,
    netns: Netns,
    outside: Netns,
    state: tempfile::TempDir,
    prefix: NodePrefix,
    range4: Option<Ipv4Range>,
    table: Recorder,
    agent: Option<Agent>,
}

impl Node {
    /// A host on the uplink's link.
    pub(crate) const OUTSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x100);

    /// Makes the namespaces and starts the agent's parts.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, Self::prefix())
    }

    /// The same with another prefix.
    pub(crate) fn start_with(name: &str, prefix: NodePrefix) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "run as root: sudo -E cargo test -p dormouse-agent --test cni"
        );
        let name = format!("dmt{}-{name}", std::process::id());
        let netns = Netns::create(&format!("{name}-node"));
        let outside = Netns::create(&format!("{name}-out"));
        let peer = format!("{name}-out");
        netns.ip(&[
            "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", &peer,
        ]);
        let mut node = Self {
            name,
            netns,
            outside,
            state: tempfile::tempdir().unwrap(),
            prefix,
            range4: None,
            table: Recorder::default(),
            agent: None,
        };
        let addresses = [
            (&node.netns, Self::address()),
            (&node.outside, Self::OUTSIDE),
        ];
        for (netns, address) in addresses {
            netns.ip(&["link", "set", "lo", "up"]);
            netns.ip(&["link", "set", "up0", "up"]);
            netns.ip(&[
                "addr",
                "add",
                &format!("{address}/64"),
                "dev",
                "up0",
                "nodad",
            ]);
        }
        node.restart();
        node
    }

    /// Ends the agent's parts; pods stay.
    pub(crate) fn stop(&mut self) {
        if let Some(Agent {
            network,
            shutdown,
            thread,
        }) = self.agent.take()
        {
            shutdown.cancel();
            drop(network);
            thread.join().unwrap();
        }
    }

    /// Starts them again, with an empty data path.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.table.0.lock().unwrap().clear();
        let mut config = NetworkConfig::new(self.prefix, self.state_dir().to_owned(), "up0");
        config.range4 = self.range4;
        config.proxy_neighbors = true;
        let (table, socket) = (self.table.clone(), self.socket());
        let shutdown = CancellationToken::new();
        let (netns, stop) = (self.netns.file.try_clone().unwrap(), shutdown.clone());
        let (opened, network) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
            // Threads of the runtime inherit this one's namespace.
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let network = Network::open(config, Box::new(table));
                let network = Arc::new(network.unwrap_or_else(|error| panic!("{}", error.chain())));
                let listener = cni::bind(&socket).unwrap();
                opened.send(Arc::clone(&network)).unwrap();
                cni::serve(listener, network, stop).await.unwrap();
            });
        });
        let network = network.recv().expect("the agent's network opens");
        self.agent = Some(Agent {
            network,
            shutdown,
            thread,
        });
    }

    /// The same, with other IPv4 addresses for pods.
    pub(crate) fn restart_with(&mut self, range4: Option<Ipv4Range>) {
        self.range4 = range4;
        self.restart();
    }

    pub(crate) fn netns(&self) -> &Netns {
        &self.netns
    }

    pub(crate) fn outside(&self) -> &Netns {
        &self.outside
    }

    pub(crate) fn prefix() -> NodePrefix {
        "2001:db8:d0:0:0:1::/96".parse().unwrap()
    }

    pub(crate) fn address() -> Ipv6Addr {
        "2001:db8:d0:0:0:1:0:1".parse().unwrap()
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state.path().join("agent.sock")
    }

    /// An empty namespace for a pod.
    pub(crate) fn pod(&self, name: &str) -> Netns {
        Netns::create(&format!("{}-pod-{name}", self.name))
    }

    /// The addresses that were added to the data path, in order.
    pub(crate) fn table(&self) -> Vec<Ipv6Addr> {
        let mut addresses: Vec<_> = self
            .table
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|pod| pod.address)
            .collect();
        addresses.sort();
        addresses
    }

    /// From now on the data path refuses pods.
    pub(crate) fn fill_table(&self) {
        self.table.1.store(true, Ordering::Relaxed);
    }

    /// Names of the pods' links on the node.
    pub(crate) fn links(&self) -> Vec<String> {
        self.netns.inside(|| {
            let links = nix::net::if_::if_nameindex()?;
            let names = links
                .iter()
                .map(|link| link.name().to_string_lossy().into_owned());
            Ok(names.filter(|name| name.starts_with("dm0")).collect())
        })
    }

    /// How many requests ended that way.
    pub(crate) fn counted(&self, command: &'static str, code: u32) -> u64 {
        let network = &self.agent.as_ref().unwrap().network;
        network
            .counters()
            .snapshot()
            .get(&(command, code))
            .map_or(0, |count| count.count)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a condition that comes by itself.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

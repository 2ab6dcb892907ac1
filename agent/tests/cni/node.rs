//! A node with an agent's pod network and its socket, without the rest of an agent.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dormouse_agent::cni;
use dormouse_agent_pod::{Ipv4Range, Network, NetworkConfig, NodePrefix, PodEntry, PodTable};
use dormouse_rig::address::PREFIX;
use dormouse_rig::{Netns, Site, wait};
use nix::sched::{CloneFlags, setns};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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
    site: Site,
    prefix: NodePrefix,
    range4: Option<Ipv4Range>,
    table: Recorder,
    agent: Option<Agent>,
}

impl Node {
    /// A host on the uplink's link.
    pub(crate) const OUTSIDE: Ipv6Addr = Site::OUTSIDE;

    /// Makes the namespaces and starts the agent's parts.
    pub(crate) fn start() -> Self {
        Self::start_with(Self::prefix())
    }

    /// The same with another prefix.
    pub(crate) fn start_with(prefix: NodePrefix) -> Self {
        let mut node = Self {
            site: Site::new(),
            prefix,
            range4: None,
            table: Recorder::default(),
            agent: None,
        };
        // No data path answers solicitations for the pods here.
        let route = format!("-6 route add {prefix} via {}", Self::address());
        node.outside().ip(&route);
        node.restart();
        node
    }

    /// Ends the agent's parts; pods stay. A process that another test forks has the journal open until it executes its program.
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
        let journal = self.state_dir().join("leases");
        wait("no process has the journal open", || {
            !journal.exists() || File::open(&journal).is_ok_and(|file| file.try_lock().is_ok())
        });
    }

    /// Starts them again, with an empty data path.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.table.0.lock().unwrap().clear();
        let mut config = NetworkConfig::new(self.prefix, self.state_dir().to_owned(), Site::UPLINK);
        config.range4 = self.range4;
        let (table, socket) = (self.table.clone(), self.socket());
        let shutdown = CancellationToken::new();
        let (netns, stop) = (self.netns().file().try_clone().unwrap(), shutdown.clone());
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
                let (_, in_force) = watch::channel(true);
                let parts = cni::Parts {
                    network,
                    host_ports: None,
                    in_force,
                };
                let served = cni::serve(listener, parts, cni::Admission::default(), stop);
                served.await.unwrap();
            });
        });
        let network = network.recv().expect("the agent's network opens");
        self.agent = Some(Agent {
            network,
            shutdown,
            thread,
        });
    }

    /// The repairs that the agent makes once a minute.
    pub(crate) fn reconcile(&self) {
        let network = &self.agent.as_ref().expect("it runs").network;
        let done = self.netns().enter(|| network.reconcile());
        done.unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// The same, with other IPv4 addresses for pods.
    pub(crate) fn restart_with(&mut self, range4: Option<Ipv4Range>) {
        self.range4 = range4;
        self.restart();
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.site.node()
    }

    pub(crate) fn outside(&self) -> &Netns {
        self.site.outside()
    }

    pub(crate) fn prefix() -> NodePrefix {
        PREFIX.parse().unwrap()
    }

    pub(crate) fn address() -> Ipv6Addr {
        Site::NODE
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.site.state_dir()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.site.socket()
    }

    /// An empty namespace for a pod.
    pub(crate) fn pod(&self, name: &str) -> Netns {
        self.site.pod(name)
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
        let mut links = self.netns().links();
        links.retain(|name| name.starts_with("dm0"));
        links
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

//! A node with the pod network of the test's own process, without an agent's socket and a plugin.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dormouse_agent_pod::{LeaseKey, Network, NetworkConfig, NodePrefix, PodEntry, PodTable};
use dormouse_cni::message::{Wanted, Wired};
use dormouse_rig::address::PREFIX;
use dormouse_rig::{Netns, Site};

/// The data path's table of pods, in memory.
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
pub(crate) struct Node(Site);

impl Node {
    /// The node's own address, and that of a host on the uplink's link.
    pub(crate) const ADDRESS: Ipv6Addr = Site::NODE;
    pub(crate) const OUTSIDE: Ipv6Addr = Site::OUTSIDE;
    /// The same host's IPv4 address, for nodes that have any.
    pub(crate) const OUTSIDE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

    /// Makes the namespaces. The host outside has a route to the node's prefix.
    pub(crate) fn start() -> Self {
        let site = Site::new();
        let route = format!("route add {PREFIX} via {}", Site::NODE);
        site.outside().ip(&route);
        Self(site)
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.0.node()
    }

    pub(crate) fn outside(&self) -> &Netns {
        self.0.outside()
    }

    pub(crate) fn prefix() -> NodePrefix {
        PREFIX.parse().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.state_dir()
    }

    /// Opens the pod network.
    pub(crate) fn open(&self, table: impl PodTable + 'static) -> Network {
        let config = NetworkConfig::new(Self::prefix(), self.folder().to_owned(), Site::UPLINK);
        let open = || Network::open(config, Box::new(table)).map_err(|error| error.chain());
        self.netns().enter(open).unwrap()
    }

    /// Opens it with IPv4 addresses for pods, for which the host outside has a route to the node.
    pub(crate) fn open_dual(&self, table: impl PodTable + 'static) -> Network {
        self.netns().ip("addr add 198.51.100.1/24 dev up0");
        self.outside()
            .ip(&format!("addr add {}/24 dev up0", Self::OUTSIDE4));
        self.outside().ip("route add 192.0.2.0/24 via 198.51.100.1");
        let mut config = NetworkConfig::new(Self::prefix(), self.folder().to_owned(), Site::UPLINK);
        config.range4 = "192.0.2.0/24".parse().ok();
        let open = || Network::open(config, Box::new(table)).map_err(|error| error.chain());
        self.netns().enter(open).unwrap()
    }

    /// An empty namespace for a pod.
    pub(crate) fn pod(&self, name: &str) -> Netns {
        self.0.pod(name)
    }

    /// Wires a pod.
    pub(crate) fn add(&self, network: &Network, name: &str, pod: &Netns, wanted: &Wanted) -> Wired {
        let (key, netns) = (key(name), pod.file().as_fd());
        let add = || {
            let added = network.add(&key, netns, wanted);
            added.map_err(|error| error.chain())
        };
        self.netns().enter(add).unwrap()
    }

    /// Unwires it.
    pub(crate) fn del(&self, network: &Network, name: &str) {
        let key = key(name);
        let del = || network.del(&key).map_err(|error| error.chain());
        self.netns().enter(del).unwrap();
    }
}

fn key(container: &str) -> LeaseKey {
    LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    }
}

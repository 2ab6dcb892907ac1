//! A node's namespace and one outside, on one link. Programs are the test's to start.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use crate::address;
use crate::names;
use crate::netns::Netns;

/// Both namespaces, and a folder for the node's state.
#[derive(Debug)]
pub struct Site {
    name: String,
    node: Netns,
    outside: Netns,
    state: tempfile::TempDir,
}

impl Site {
    /// The node's address.
    pub const NODE: Ipv6Addr = address::NODE;
    /// The address of the host outside.
    pub const OUTSIDE: Ipv6Addr = address::CLIENT;
    /// The interface of both to each other.
    pub const UPLINK: &str = "up0";

    /// Makes both namespaces; each reaches the other by its address.
    pub fn new() -> Self {
        let name = names::fresh("site");
        let node = Netns::named(&format!("{name}-node"));
        let outside = Netns::named(&format!("{name}-out"));
        let (link, peer) = (Self::UPLINK, outside.name());
        node.ip(&format!(
            "link add {link} type veth peer name {link} netns {peer}"
        ));
        for (netns, address) in [(&node, Self::NODE), (&outside, Self::OUTSIDE)] {
            netns.ip("link set lo up");
            netns.ip(&format!("link set {link} up"));
            netns.ip(&format!("addr add {address}/64 dev {link} nodad"));
        }
        Self {
            name,
            node,
            outside,
            state: tempfile::tempdir().unwrap(),
        }
    }

    /// The node's namespace.
    pub fn node(&self) -> &Netns {
        &self.node
    }

    /// The namespace of the host outside.
    pub fn outside(&self) -> &Netns {
        &self.outside
    }

    /// The folder of the node's state.
    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// Where the node's agent serves the plugin.
    pub fn socket(&self) -> PathBuf {
        self.state_dir().join("agent.sock")
    }

    /// An empty namespace for a pod; its loopback device is down.
    pub fn pod(&self, id: &str) -> Netns {
        Netns::named(&format!("{}-pod-{id}", self.name))
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

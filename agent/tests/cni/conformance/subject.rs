//! The plugins under test: ours, and those that prove the suite.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::deviations::{self, Deviation};
use crate::conformance::stage::Stage;
use crate::node::Node;
use dormouse_rig::binaries::plugin;

/// A plugin with what a case must know of it.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) binary: PathBuf,
    /// `CNI_PATH`
    pub(crate) path: String,
    /// Its configuration, but for `cniVersion` and `name`.
    pub(crate) conf: fn(&Node) -> Value,
    /// Keys that give pods an IPv6 and an IPv4 address, if it can be configured so.
    pub(crate) dual: Option<fn(&mut Node) -> Value>,
    /// Keys that leave two addresses for pods; without them, [`nearly_used_up`] does.
    pub(crate) tiny: Option<fn(&Node) -> Value>,
    /// The plugin that hands out addresses, and its section `ipam`.
    pub(crate) ipam: (PathBuf, fn(&Node) -> Value),
    /// Addresses that are taken.
    pub(crate) leases: fn(&Node) -> Vec<String>,
    /// An address that a pod may ask for, one outside of what it may, and the gateway.
    pub(crate) ask: Ask,
    /// Does a daemon stand behind it?
    pub(crate) daemon: bool,
    pub(crate) deviations: &'static [Deviation],
}

/// Addresses to ask for.
pub(crate) struct Ask {
    pub(crate) free: [&'static str; 3],
    pub(crate) outside: &'static str,
    pub(crate) gateway: &'static str,
}

const OURS: Ask = Ask {
    free: [
        "2001:db8:d0:0:0:1:0:42",
        "2001:db8:d0:0:0:1:0:43",
        "2001:db8:d0:0:0:1:0:44",
    ],
    outside: "2001:db8:bad::42",
    gateway: "2001:db8:d0:0:0:1:0:1",
};

const REFERENCE: Ask = Ask {
    free: ["2001:db8:e0::42", "2001:db8:e0::43", "2001:db8:e0::44"],
    outside: "2001:db8:bad::42",
    gateway: "2001:db8:e0::1",
};

fn our_places(node: &Node, kind: &str) -> Value {
    json!({"type": kind, "socket": node.socket(), "stateDir": node.state_dir()})
}

/// The plugin of this repository with its agent.
pub(crate) fn ours() -> Subject {
    let binary = plugin().to_owned();
    Subject {
        name: "dormouse-cni",
        path: binary.parent().unwrap().to_str().unwrap().to_owned(),
        conf: |node| our_places(node, "dormouse"),
        dual: Some(|node| {
            node.restart_with("192.0.2.0/24".parse().ok());
            json!({})
        }),
        tiny: None,
        ipam: (binary.clone(), |node| our_places(node, "dormouse")),
        binary,
        leases: |node| node.table().iter().map(ToString::to_string).collect(),
        ask: OURS,
        daemon: true,
        deviations: &[],
    }
}

/// The narrowest prefix that a node may own, and how many pods it takes.
const NARROWEST: (&str, usize) = ("2001:db8:d0:0:0:1::/120", 240);

/// A node on which another plugin holds all addresses of the narrowest prefix but two.
pub(crate) fn nearly_used_up(stage: &mut Stage<'_>) {
    let (prefix, pods) = NARROWEST;
    stage.node = Node::start_with(prefix.parse().unwrap());
    let others = stage.pod("others");
    let ipam = json!({"type": "bridge", "ipam": our_places(&stage.node, "dormouse")});
    for number in 2..pods {
        let add = stage.add(&format!("other{number}"), &others);
        add.conf(&ipam).ok().unwrap();
    }
}

fn host_local(node: &Node, ranges: &Value) -> Value {
    json!({"type": "host-local", "dataDir": node.state_dir().join("host-local"), "ranges": ranges})
}

fn ranges(node: &Node) -> Value {
    host_local(node, &json!([[{"subnet": "2001:db8:e0::/96"}]]))
}

/// The reference `bridge` over `host-local`, from this folder.
pub(crate) fn reference(folder: &Path) -> Subject {
    Subject {
        name: "bridge",
        binary: folder.join("bridge"),
        path: folder.to_str().unwrap().to_owned(),
        conf: |node| json!({"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipam": ranges(node)}),
        dual: Some(|node| {
            let both = json!([[{"subnet": "2001:db8:e0::/96"}], [{"subnet": "192.0.2.0/24"}]]);
            json!({"ipam": host_local(node, &both)})
        }),
        tiny: Some(|node| {
            let tiny = json!([[{"subnet": "2001:db8:e0::/126"}]]);
            json!({"ipam": host_local(node, &tiny)})
        }),
        ipam: (folder.join("host-local"), ranges),
        leases: |node| {
            let networks = files(&node.state_dir().join("host-local"));
            let leases = networks.iter().flat_map(|network| files(network));
            let names = leases.map(|file| file.display().to_string());
            names
                .filter(|name| !name.ends_with("lock") && !name.contains("last_reserved"))
                .collect()
        },
        ask: REFERENCE,
        daemon: false,
        deviations: deviations::REFERENCE,
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The reference `bridge`, drawing its addresses from our plugin, which `CNI_PATH` has as `dormouse`.
pub(crate) fn reference_over_ours(folder: &Path, links: &Path) -> Subject {
    std::os::unix::fs::symlink(plugin(), links.join("dormouse")).unwrap();
    Subject {
        name: "bridge over dormouse-cni",
        path: format!("{}:{}", folder.display(), links.display()),
        conf: |node| json!({"type": "bridge", "bridge": "cni0", "ipam": our_places(node, "dormouse")}),
        binary: folder.join("bridge"),
        deviations: &[],
        ..ours()
    }
}

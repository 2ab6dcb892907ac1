//! The flags that select a node: its folder of pins, its agent's address, its state folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_agent_datapath::Pinned;
use dormouse_agent_inspect::names::Names;
use dormouse_agent_inspect::wiring::Wiring;
use dormouse_agent_inspect::{Exit, InspectError};

/// The folder that contains each node's folder of pins.
const PINS: &str = "/sys/fs/bpf/dormouse";

/// The folder of a node's pins. A name in bpffs has no dots, and that of a node has no underscores.
pub(super) fn pins_of(node: &str) -> PathBuf {
    Path::new(PINS).join(node.replace('.', "_"))
}

/// The flags of `get`, `flows` and `explain` that select a node.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NodeFlags {
    /// Name of the node; needed if this machine has pins of several
    #[arg(long, env = "DORMOUSE_NODE")]
    node: Option<String>,
    /// Folder in which its maps are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    bpffs: Option<PathBuf>,
    /// Address and port of its agent's metrics server, which also serves the Services' names
    #[arg(long, env = "DORMOUSE_METRICS", default_value = "[::1]:10249")]
    metrics: SocketAddr,
    /// State folder of the node, which contains the journal of address leases
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    state_dir: PathBuf,
}

impl NodeFlags {
    /// The agent's address; an unspecified listen address becomes the loopback address.
    pub(super) fn agent(&self) -> SocketAddr {
        let mut agent = self.metrics;
        if agent.ip().is_unspecified() {
            let here = if agent.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            };
            agent.set_ip(here);
        }
        agent
    }

    /// Opens the node's maps.
    pub(super) fn pinned(&self) -> Result<Pinned, InspectError> {
        Ok(Pinned::open(&self.folder()?)?)
    }

    /// Opens the node's maps and reads the names of their owners; without an agent, prints that names are missing.
    pub(super) fn named(&self) -> Result<(Pinned, Names), InspectError> {
        let pinned = self.pinned()?;
        let names = self.names(&pinned)?;
        Ok((pinned, names))
    }

    /// Reads the names of the owners of slots and VIPs.
    pub(super) fn names(&self, pinned: &Pinned) -> Result<Names, InspectError> {
        let names = Names::read(self.agent(), pinned)?;
        if let Some(hint) = names.hint() {
            print_note(&hint);
        }
        Ok(names)
    }

    /// The wiring of the node's pods; without a readable data path, prints a note and continues.
    pub(super) fn wiring(&self) -> Result<(Wiring, Option<Pinned>), InspectError> {
        let pinned = self.pinned();
        if let Err(error) = &pinned {
            print_note(&format!(
                "note: the data path's columns are empty: {}",
                error.message
            ));
        }
        let pinned = pinned.ok();
        let wiring = Wiring::look(&self.state_dir, pinned.as_ref())?;
        Ok((wiring, pinned))
    }

    /// The node's state folder.
    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The node's folder of pins.
    pub(super) fn folder(&self) -> Result<PathBuf, InspectError> {
        match (&self.bpffs, &self.node) {
            (Some(bpffs), _) => Ok(bpffs.clone()),
            (None, Some(node)) => {
                super::check_name(node).map_err(|error| {
                    InspectError::usage(error.to_string(), "ls /sys/fs/bpf/dormouse")
                })?;
                Ok(pins_of(node))
            }
            (None, None) => only_node(Path::new(PINS)),
        }
    }
}

/// The folder of the only node with pins on this machine.
fn only_node(pins: &Path) -> Result<PathBuf, InspectError> {
    let entries = match std::fs::read_dir(pins) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let message = format!("cannot read {}: {error}", pins.display());
            return Err(InspectError::not_allowed(message));
        }
        entries => entries.into_iter().flatten().flatten(),
    };
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    nodes.sort_unstable();
    match nodes.as_slice() {
        [node] => Ok(node.clone()),
        [] => Err(InspectError::new(
            Exit::Unreachable,
            format!("no node has pinned maps in {}", pins.display()),
            "start an agent: sudo dormouse-agent run ...; or give the folder with --bpffs",
        )),
        nodes => {
            let names = nodes.iter().filter_map(|node| node.file_name()?.to_str());
            let names: Vec<String> = names.map(|name| name.replace('_', ".")).collect();
            let message = format!("several nodes have pinned maps here: {}", names.join(", "));
            Err(InspectError::usage(message, "select one with --node"))
        }
    }
}

/// Writes a note to stderr, beside the answer on stdout.
pub(super) fn print_note(text: &str) {
    use std::io::Write as _;
    // There is no other place to report a failure to.
    drop(writeln!(std::io::stderr(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_node_need_not_be_named() {
        let pins = tempfile::tempdir().unwrap();
        let none = only_node(pins.path()).unwrap_err();
        assert_eq!(none.exit, Exit::Unreachable);
        std::fs::create_dir(pins.path().join("n1")).unwrap();
        assert_eq!(only_node(pins.path()).unwrap(), pins.path().join("n1"));
        let second = pins_of("n2.example");
        let second = second.file_name().unwrap();
        assert_eq!(second, "n2_example");
        std::fs::create_dir(pins.path().join(second)).unwrap();
        let several = only_node(pins.path()).unwrap_err();
        assert_eq!(several.exit, Exit::Usage);
        assert!(several.message.ends_with("n1, n2.example") && several.hint.contains("--node"));
    }

    #[test]
    fn a_listeners_any_address_is_this_machine_to_a_client() {
        let flags = |metrics: &str| NodeFlags {
            node: None,
            bpffs: None,
            metrics: metrics.parse().unwrap(),
            state_dir: PathBuf::new(),
        };
        assert_eq!(flags("[::]:7").agent().to_string(), "[::1]:7");
        assert_eq!(flags("0.0.0.0:7").agent().to_string(), "127.0.0.1:7");
        assert_eq!(flags("10.0.0.1:7").agent().to_string(), "10.0.0.1:7");
    }
}

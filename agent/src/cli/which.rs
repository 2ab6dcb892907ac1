//! Which node is asked: its folder of pins, and the address where its agent tells what only it knows.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_agent_datapath::Pinned;
use dormouse_agent_inspect::names::Names;
use dormouse_agent_inspect::wiring::Wiring;
use dormouse_agent_inspect::{Exit, Trouble};

/// Where nodes have their folders of pins.
const PINS: &str = "/sys/fs/bpf/dormouse";

/// The flags of whatever asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// The node's name, if this machine has pins of several
    #[arg(long, env = "DORMOUSE_NODE")]
    node: Option<String>,
    /// Where its maps are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    bpffs: Option<PathBuf>,
    /// Where its agent serves metrics; names come from there
    #[arg(long, env = "DORMOUSE_METRICS", default_value = "[::1]:10249")]
    metrics: SocketAddr,
    /// The node's state folder: who holds which address is told there
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    state_dir: PathBuf,
}

impl Which {
    /// The agent's address; what a listener calls "any" is this machine to a client.
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

    /// The node's maps.
    pub(super) fn pinned(&self) -> Result<Pinned, Trouble> {
        Ok(Pinned::open(&self.folder()?)?)
    }

    /// The node's maps, and whose is what in them. Without an agent, a note says that names are missing.
    pub(super) fn named(&self) -> Result<(Pinned, Names), Trouble> {
        let pinned = self.pinned()?;
        let names = self.names(&pinned)?;
        Ok((pinned, names))
    }

    /// Whose is what in maps that are open.
    pub(super) fn names(&self, pinned: &Pinned) -> Result<Names, Trouble> {
        let names = Names::read(self.agent(), pinned)?;
        if let Some(hint) = names.hint() {
            beside(&hint);
        }
        Ok(names)
    }

    /// What the node's pods are wired to. Where the data path cannot be read, a note says so, and the rest is told.
    pub(super) fn wiring(&self) -> Result<(Wiring, Option<Pinned>), Trouble> {
        let pinned = self.pinned();
        if let Err(trouble) = &pinned {
            beside(&format!(
                "note: what the data path knows is not shown: {}",
                trouble.message
            ));
        }
        let pinned = pinned.ok();
        let wiring = Wiring::look(&self.state_dir, pinned.as_ref())?;
        Ok((wiring, pinned))
    }

    fn folder(&self) -> Result<PathBuf, Trouble> {
        match (&self.bpffs, &self.node) {
            (Some(bpffs), _) => Ok(bpffs.clone()),
            (None, Some(node)) => {
                super::check_name(node).map_err(|error| {
                    Trouble::usage(error.to_string(), "ls /sys/fs/bpf/dormouse")
                })?;
                Ok(Path::new(PINS).join(node))
            }
            (None, None) => only_node(Path::new(PINS)),
        }
    }
}

/// The folder of the only node whose pins are here.
fn only_node(pins: &Path) -> Result<PathBuf, Trouble> {
    let entries = match std::fs::read_dir(pins) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let message = format!("cannot look into {}: {error}", pins.display());
            let hint = "run it as root: sudo dormouse-agent ...";
            return Err(Trouble::new(Exit::NotAllowed, message, hint));
        }
        entries => entries.into_iter().flatten().flatten(),
    };
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    nodes.sort_unstable();
    match nodes.as_slice() {
        [node] => Ok(node.clone()),
        [] => Err(Trouble::new(
            Exit::Unreachable,
            format!("no node has its maps in {}", pins.display()),
            "start one: sudo dormouse-agent run ...; or name the folder by --bpffs",
        )),
        nodes => {
            let names = nodes.iter().filter_map(|node| node.file_name()?.to_str());
            let names: Vec<&str> = names.collect();
            let message = format!("several nodes have their maps here: {}", names.join(", "));
            Err(Trouble::usage(message, "name one by --node"))
        }
    }
}

/// A line for people beside the answer.
pub(super) fn beside(text: &str) {
    use std::io::Write as _;
    // Where even stderr is gone, nobody misses it.
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
        std::fs::create_dir(pins.path().join("n2")).unwrap();
        let several = only_node(pins.path()).unwrap_err();
        assert_eq!(several.exit, Exit::Usage);
        assert!(several.message.ends_with("n1, n2") && several.hint.contains("--node"));
    }

    #[test]
    fn a_listeners_any_address_is_this_machine_to_a_client() {
        let which = |metrics: &str| Which {
            node: None,
            bpffs: None,
            metrics: metrics.parse().unwrap(),
            state_dir: PathBuf::new(),
        };
        assert_eq!(which("[::]:7").agent().to_string(), "[::1]:7");
        assert_eq!(which("0.0.0.0:7").agent().to_string(), "127.0.0.1:7");
        assert_eq!(which("10.0.0.1:7").agent().to_string(), "10.0.0.1:7");
    }
}

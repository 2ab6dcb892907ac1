//! The problems of this node that become Events.

use std::io;
use std::path::{Path, PathBuf};

use dormouse_agent_services::Prefix;
use k8s_openapi::api::core::v1::Node;
use tracing::warn;

use super::NodeStatus;
use crate::addresses;
use crate::doctor::probe::processes;
use crate::own_node::{Described, Given, Place, Problem, changed, problems, saved};
use crate::profile::Profile;

/// What the node uses, and by what it was found.
#[derive(Clone, Debug)]
pub struct Local {
    /// The flags.
    pub given: Given,
    /// The network profile.
    pub profile: &'static Profile,
    /// What is used.
    pub place: Place,
    /// Name of the uplink.
    pub uplink: String,
    /// The node's state folder, with the copy of what the Node object said.
    pub state_dir: PathBuf,
}

impl Local {
    /// Whether the object gives other ranges than those in use.
    pub(super) fn is_changed(&self, node: &Node) -> bool {
        let described = Described::of(node);
        changed(&self.given, self.profile, &self.place, &described).is_some()
    }
}

/// The present problems. `removed`: the copy that was removed because the ranges changed.
pub(super) async fn look(
    status: &NodeStatus,
    node: Option<&Node>,
    removed: &mut Option<Described>,
) -> Vec<Problem> {
    let local = &status.local;
    if node.is_some_and(|node| local.is_changed(node)) {
        let network = status.readiness.network.as_ref();
        let has_pods = network.is_some_and(|network| network.usage().held > 0);
        if let Err(error) = update_copy(&local.state_dir, &status.node, has_pods, removed) {
            warn!(%error, "failed to update the copy of what the Node object said: the next agent may use ranges that it cannot use");
        }
    }
    let mut found = of_object(local, node);
    found.extend(full(status));
    let processes = tokio::task::spawn_blocking(processes::kube_proxy).await;
    let pid = processes.ok().and_then(|all| all.first().copied());
    found.extend(pid.map(|pid| Problem {
        reason: "KubeProxyRunning",
        note: format!(
            "kube-proxy runs on this node (process {pid}) beside dormouse-agent: both program Services; remove it when the agents of all nodes are ready, then its rules (dormouse-agent uninstall --kube-proxy-leftovers)"
        ),
    }));
    found
}

fn of_object(local: &Local, node: Option<&Node>) -> Vec<Problem> {
    let described = node.map(Described::of).unwrap_or_default();
    let networks: Vec<Prefix> = addresses::networks(&local.uplink).unwrap_or_default();
    problems(
        &local.given,
        local.profile,
        &local.place,
        &described,
        &networks,
    )
}

/// Removes the copy, so that the next agent uses the changed ranges, but only while no pod has an address of those in use: with
/// leases of another prefix it would not start.
fn update_copy(
    state_dir: &Path,
    node: &str,
    has_pods: bool,
    removed: &mut Option<Described>,
) -> io::Result<()> {
    if has_pods {
        if let Some(described) = removed {
            saved::save(state_dir, described)?;
            *removed = None;
        }
    } else if let Some(described) = saved::load(state_dir, node) {
        saved::remove(state_dir)?;
        *removed = Some(described);
    }
    Ok(())
}

/// Maps without room, and a prefix without free addresses.
fn full(status: &NodeStatus) -> Vec<Problem> {
    let network = &status.readiness.network;
    let full = status
        .datapath
        .fill()
        .into_iter()
        .filter(|(_, used, room)| *room > 0 && used >= room);
    let mut names: Vec<_> = full.map(|(name, ..)| name).collect();
    names.sort_unstable();
    let maps = (!names.is_empty()).then(|| Problem {
        reason: "MapFull",
        note: format!(
            "maps of the data path are full ({}): further Services or backends are not served on this node",
            names.join(", ")
        ),
    });
    let free = network.as_ref().map(|network| network.usage().free);
    let prefix = (free == Some(0)).then(|| Problem {
        reason: "PrefixExhausted",
        note: "no pod address of this node is free: further pods wait until others are deleted (dormouse-agent get addresses)".to_owned(),
    });
    maps.into_iter().chain(prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_changed_ranges_is_absent_only_while_there_are_no_pods() {
        let folder = tempfile::tempdir().unwrap();
        let described = Described {
            name: "n1".to_owned(),
            ..Described::default()
        };
        saved::save(folder.path(), &described).unwrap();
        let mut removed = None;
        let mut copy = |has_pods| {
            update_copy(folder.path(), "n1", has_pods, &mut removed).unwrap();
            saved::load(folder.path(), "n1")
        };
        assert_eq!(copy(true), Some(described.clone()));
        assert_eq!(copy(false), None);
        assert_eq!(copy(false), None);
        // A pod came before the agent was restarted.
        assert_eq!(copy(true), Some(described));
        assert_eq!(copy(false), None);
    }
}

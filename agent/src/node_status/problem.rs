//! The problems of this node that become Events.

use std::path::PathBuf;

use dormouse_agent_services::Prefix;
use k8s_openapi::api::core::v1::Node;
use tracing::warn;

use super::NodeStatus;
use crate::addresses;
use crate::doctor::probe::processes;
use crate::own_node::{Described, Given, Place, Problem, problems, saved};
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

/// The present problems.
pub(super) async fn look(status: &NodeStatus, node: Option<&Node>) -> Vec<Problem> {
    let mut found = of_object(&status.local, node);
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
    let found = problems(
        &local.given,
        local.profile,
        &local.place,
        &described,
        &networks,
    );
    if found
        .iter()
        .any(|problem| problem.reason == "PodCIDRChanged")
        && let Err(error) = saved::remove(&local.state_dir)
    {
        warn!(%error, "failed to remove the copy of what the Node object said: the next agent uses it again");
    }
    found
}

/// Maps without room, and a prefix without free addresses.
fn full(status: &NodeStatus) -> Vec<Problem> {
    let (datapath, network) = &status.parts;
    let full = datapath
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

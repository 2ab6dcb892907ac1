//! Recovery plan of a restarted agent: compares the journal's leases with the kernel's links. Pure.

use std::collections::HashMap;

use dormouse_agent_ipam::{Lease, NetnsId, State, Suffix};
use dormouse_agent_netlink::links;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

use super::messages::{DELETED_GROUP, POD_GROUP};
use super::names;
use super::names::Alias;

#[cfg(test)]
mod tests;

/// Qdiscs without a queue: of a link that is up, and of one that is down.
const UNQUEUED: [&str; 2] = ["noqueue", "noop"];

/// A link on the host with a pod's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodLink {
    pub(crate) suffix: Suffix,
    pub(crate) ifindex: u32,
    /// ifindex of the bridge that it is a port of.
    pub(crate) controller: Option<u32>,
    /// The lease's data in the link's alias.
    pub(crate) alias: Option<Alias>,
    /// MTU in bytes.
    pub(crate) mtu: u32,
    /// It has a queueing qdisc, because the pod has a rate limit.
    pub(crate) queues: bool,
}

impl PodLink {
    /// Reads a link; none if it is not a pod's.
    pub(crate) fn read(link: &LinkMessage) -> Option<Self> {
        let (mut suffix, mut controller, mut alias) = (None, None, None);
        let (mut ours, mut queues) = (false, false);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => suffix = names::suffix_of_link(name),
                LinkAttribute::Controller(index) => controller = Some(*index),
                LinkAttribute::IfAlias(text) => alias = names::parse_alias(text),
                LinkAttribute::Qdisc(kind) => queues = !UNQUEUED.contains(&kind.as_str()),
                LinkAttribute::Group(group) => ours = [POD_GROUP, DELETED_GROUP].contains(group),
                _ => {}
            }
        }
        let suffix = suffix?;
        let alias = alias.filter(|alias| alias.suffix == suffix);
        // Other software's link may have such a name.
        if !ours && alias.is_none() {
            return None;
        }
        Some(Self {
            suffix,
            ifindex: link.header.index,
            controller,
            alias,
            mtu: links::mtu(link).unwrap_or_default(),
            queues,
        })
    }

    /// Link-layer address of the pod's side.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let chosen = self.alias.as_ref().map(|alias| alias.mac);
        chosen.unwrap_or(names::pod_mac(self.suffix))
    }
}

/// One step of the recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// The pod is live: add it to the data path.
    Keep(PodLink),
    /// An interrupted ADD or DEL, or a deleted namespace: remove what is left and free the lease.
    Unwire(Lease),
    /// The pod is live but the journal has no lease: restore it.
    Adopt(Lease, PodLink),
    /// A link without a lease and without an alias: delete it.
    RemoveLink(String),
}

/// Compares leases and links.
pub(crate) fn plan<'a>(
    leases: impl Iterator<Item = &'a Lease>,
    links: &[PodLink],
    bridges: &[u32],
) -> Vec<Repair> {
    let mut left: HashMap<Suffix, &PodLink> =
        links.iter().map(|link| (link.suffix, link)).collect();
    let is_ours = |link: &PodLink| link.controller.is_some_and(|c| bridges.contains(&c));
    let mut healings = Vec::new();
    for lease in leases {
        let link = left.remove(&lease.suffix);
        healings.push(match (lease.state, link) {
            (State::Live, Some(link)) => Repair::Keep(link.clone()),
            _ => Repair::Unwire(lease.clone()),
        });
    }
    healings.extend(left.into_values().map(|link| match &link.alias {
        Some(alias) if is_ours(link) => Repair::Adopt(adopted(alias), link.clone()),
        _ => Repair::RemoveLink(names::link_name(link.suffix)),
    }));
    healings
}

fn adopted(alias: &Alias) -> Lease {
    Lease {
        key: alias.key.clone(),
        suffix: alias.suffix,
        state: State::Live,
        netns: NetnsId::default(),
        since: std::time::Duration::ZERO,
        ipv4: alias.address4,
        wired: true,
    }
}

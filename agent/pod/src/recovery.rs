//! What a restarted agent has to heal: the journal's leases against the kernel's links. Pure.

use std::collections::HashMap;

use dormouse_agent_ipam::{Lease, NetnsId, State, Suffix};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

use super::messages::{DOOMED_GROUP, POD_GROUP};
use super::names;
use super::names::Alias;
use dormouse_agent_netlink::links;

#[cfg(test)]
mod tests;

/// The queues of a link that sends at once: while it is up, and before.
const UNQUEUED: [&str; 2] = ["noqueue", "noop"];

/// A link on the host that bears a pod's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodLink {
    pub(crate) suffix: Suffix,
    pub(crate) ifindex: u32,
    /// The bridge it is a port of.
    pub(crate) controller: Option<u32>,
    /// Whose it is, as it says itself.
    pub(crate) alias: Option<Alias>,
    /// Largest packet, in bytes.
    pub(crate) mtu: u32,
    /// What is sent to the pod may have to wait: it has a limit.
    pub(crate) queues: bool,
}

impl PodLink {
    /// Reads a link; none if it is no pod's.
    pub(crate) fn read(link: &LinkMessage) -> Option<Self> {
        let (mut suffix, mut controller, mut alias) = (None, None, None);
        let (mut ours, mut queues) = (false, false);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => suffix = names::suffix_of_link(name),
                LinkAttribute::Controller(index) => controller = Some(*index),
                LinkAttribute::IfAlias(text) => alias = names::parse_alias(text),
                LinkAttribute::Qdisc(kind) => queues = !UNQUEUED.contains(&kind.as_str()),
                LinkAttribute::Group(group) => ours = [POD_GROUP, DOOMED_GROUP].contains(group),
                _ => {}
            }
        }
        let suffix = suffix?;
        let alias = alias.filter(|alias| alias.suffix == suffix);
        // Somebody else's link may have such a name.
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

    /// The link-layer address of the pod's end.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let told = self.alias.as_ref().map(|alias| alias.mac);
        told.unwrap_or(names::pod_mac(self.suffix))
    }
}

/// One thing to do at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Healing {
    /// The pod lives: tell the data path.
    Keep(PodLink),
    /// Half made, half removed, or its namespace is gone: remove what is left and free the address.
    Unwire(Lease),
    /// The pod lives but the journal has lost it: take the lease back.
    Adopt(Lease, PodLink),
    /// A link that is nobody's.
    RemoveLink(String),
}

/// Compares.
pub(crate) fn plan<'a>(
    leases: impl Iterator<Item = &'a Lease>,
    links: &[PodLink],
    bridges: &[u32],
) -> Vec<Healing> {
    let mut left: HashMap<Suffix, &PodLink> =
        links.iter().map(|link| (link.suffix, link)).collect();
    let is_ours = |link: &PodLink| link.controller.is_some_and(|c| bridges.contains(&c));
    let mut healings = Vec::new();
    for lease in leases {
        let link = left.remove(&lease.suffix);
        healings.push(match (lease.state, link) {
            (State::Live, Some(link)) => Healing::Keep(link.clone()),
            _ => Healing::Unwire(lease.clone()),
        });
    }
    healings.extend(left.into_values().map(|link| match &link.alias {
        Some(alias) if is_ours(link) => Healing::Adopt(adopted(alias), link.clone()),
        _ => Healing::RemoveLink(names::link_name(link.suffix)),
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

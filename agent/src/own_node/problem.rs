//! What an operator must know about the Node object and the ranges that the node uses. Pure.

use std::net::IpAddr;

use dormouse_agent_pod::NodePrefix;
use dormouse_agent_services::Prefix;

use super::{Described, Given, Place};
use crate::profile::{Ndp, Profile};

/// Something that an operator must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason of the Event.
    pub reason: &'static str,
    /// The text.
    pub note: String,
}

/// The problems of a node that uses `place`, by what its object says now. `networks`: the networks of the uplink.
pub fn problems(
    given: &Given,
    profile: &Profile,
    place: &Place,
    described: &Described,
    networks: &[Prefix],
) -> Vec<Problem> {
    let mut found = Vec::new();
    if let Err(error) = &place.pods
        && error.is_by_object()
    {
        found.push(Problem {
            reason: "PodCIDRUnusable",
            note: error.to_string(),
        });
    }
    found.extend(changed(given, profile, place, described));
    found.extend(overlap(profile, place, networks));
    found
}

/// The ranges of the object are not those in use: only a Node that was created again has others.
pub fn changed(
    given: &Given,
    profile: &Profile,
    place: &Place,
    described: &Described,
) -> Option<Problem> {
    if given.prefix.is_some() || described.pod_cidrs.is_empty() {
        return None;
    }
    // What the metadata service says is looked at by the next agent.
    let used = place.pods.as_ref().ok();
    let described = Described {
        in_metadata: used.map(|used| used.delivered.to_string()),
        ..described.clone()
    };
    let now = super::assigned(profile, &described, place.address);
    let cidrs = described.pod_cidrs.join(", ");
    let note = match (&place.pods, &now) {
        (Ok(used), now) if now.as_ref() != Ok(used) => format!(
            "spec.podCIDRs are {cidrs} now, but this node uses {}: pods keep and get addresses of it; drain the node, then restart the agent to use the new ranges",
            used.delivered
        ),
        (Err(_), Ok(_)) => format!(
            "spec.podCIDRs are {cidrs} now, but had no usable IPv6 range when the agent started: restart it, so that it wires pods"
        ),
        _ => return None,
    };
    Some(Problem {
        reason: "PodCIDRChanged",
        note,
    })
}

/// The network routes the prefix to the node, while the node's uplink says that it is on the link: hosts of the link look for pods
/// there.
fn overlap(profile: &Profile, place: &Place, networks: &[Prefix]) -> Option<Problem> {
    let used = place
        .pods
        .as_ref()
        .ok()
        .filter(|_| profile.ndp == Ndp::Routed)?;
    let network = overlapping(used.prefix, networks)?;
    Some(Problem {
        reason: "PodCIDROverlap",
        note: format!(
            "the pods' prefix {} overlaps {network}, a network of the uplink: its hosts look for pods on the link, where no host answers for them; use another range for pods, or --network-profile on-link",
            used.prefix
        ),
    })
}

/// The first of these networks that has an address of the prefix.
pub fn overlapping(prefix: NodePrefix, networks: &[Prefix]) -> Option<&Prefix> {
    let own = Prefix::new(IpAddr::V6(prefix.network()), prefix.length())?;
    let mut networks = networks.iter();
    networks.find(|network| network.contains(own.address()) || own.contains(network.address()))
}

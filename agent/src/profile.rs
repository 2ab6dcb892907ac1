//! Network profiles: the ways in which networks deliver a node's prefix. All differences are in this table.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

use dormouse_agent_pod::NodePrefix;
use dormouse_agent_services::Prefix;

/// Neighbour discovery for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ndp {
    /// The prefix is on-link: routers solicit each pod, and need an answer to deliver its packets.
    Answer,
    /// The prefix is routed to the node: there are no solicitations, and no answers or announcements.
    Routed,
}

/// How a machine finds the prefix that the network assigns to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// Not by itself.
    Unknown,
    /// The prefix has this length, and contains the machine's own address.
    WithAddress(u8),
    /// The machine's metadata service names it ([`metadata`](crate::metadata)).
    InMetadata,
}

/// A kind of network.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// The value of `--network-profile`.
    pub name: &'static str,
    /// Whether pods are solicited.
    pub ndp: Ndp,
    /// The network's MTU in bytes, if it is the same in all networks of the kind.
    pub mtu: Option<u32>,
    /// Possible lengths of the delivered prefix; of one shorter than /96 the node takes the first /96.
    pub prefix_lengths: RangeInclusive<u8>,
    /// The node's prefix where no other is known.
    pub assigned: Assigned,
}

/// The profile that needs no configuration in the network: its router finds each pod by neighbour discovery.
pub const DEFAULT: &str = "on-link";

/// All profiles. Sources for the clouds' behaviour: docs/NETWORK.md.
pub static PROFILES: [Profile; 4] = [
    Profile {
        name: DEFAULT,
        ndp: Ndp::Answer,
        mtu: None,
        prefix_lengths: 96..=96,
        assigned: Assigned::Unknown,
    },
    Profile {
        name: "routed",
        ndp: Ndp::Routed,
        mtu: None,
        prefix_lengths: 64..=96,
        assigned: Assigned::Unknown,
    },
    // A /80 is delegated to the interface, which accepts frames to its own link-layer address only; all pods share it.
    // Whether each address is solicited is not documented, so the node answers.
    Profile {
        name: "aws",
        ndp: Ndp::Answer,
        mtu: Some(9_001),
        prefix_lengths: 80..=96,
        assigned: Assigned::InMetadata,
    },
    // A /96 is assigned to the machine, and contains its own address. Whether each address is solicited is not documented.
    Profile {
        name: "gcp",
        ndp: Ndp::Answer,
        mtu: Some(1_460),
        prefix_lengths: 96..=96,
        assigned: Assigned::WithAddress(96),
    },
];

/// The profile with that name.
pub fn named(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl Profile {
    /// The prefix that the network assigns to a machine with this address, if it does.
    pub fn assigned_to(&self, own: Ipv6Addr) -> Option<NodePrefix> {
        let Assigned::WithAddress(length) = self.assigned else {
            return None;
        };
        let network = Prefix::new(own.into(), length)?.address();
        match network {
            IpAddr::V6(network) => NodePrefix::new(network, length).ok(),
            IpAddr::V4(_) => None,
        }
    }

    /// The network's MTU, if packets of `mtu` bytes exceed it.
    pub fn exceeded_by(&self, mtu: u32) -> Option<u32> {
        self.mtu.filter(|delivered| mtu > *delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_own_name() {
        for profile in &PROFILES {
            assert_eq!(named(profile.name), Some(profile));
            assert!(profile.prefix_lengths.contains(&96), "{}", profile.name);
            if let Assigned::WithAddress(length) = profile.assigned {
                assert!(profile.prefix_lengths.contains(&length));
            }
        }
        assert!(named(DEFAULT).is_some());
        assert_eq!(named("nowhere"), None);
    }

    #[test]
    fn an_mtu_above_the_networks_is_reported() {
        let gcp = named("gcp").unwrap();
        assert_eq!(gcp.exceeded_by(1_500), Some(1_460));
        assert_eq!(gcp.exceeded_by(1_460), None);
        assert_eq!(named(DEFAULT).unwrap().exceeded_by(65_535), None);
    }
}

//! How networks deliver a node's prefix: what differs between them is this table, and nothing else asks where it runs.

use std::ops::RangeInclusive;

/// Whether the network asks for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ndp {
    /// The prefix is on the link: routers solicit each pod, and only an answer brings its packets.
    Answer,
    /// The prefix is routed to the node: nobody asks, and nothing is said.
    Routed,
}

/// A kind of network.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// What `--network-profile` calls it.
    pub name: &'static str,
    /// Whether pods are asked for.
    pub ndp: Ndp,
    /// The largest packet that it delivers in bytes, where all of its kind agree.
    pub mtu: Option<u32>,
    /// Lengths of the prefixes that it hands to a node; of one shorter than /96 the node takes the first /96.
    pub prefix_lengths: RangeInclusive<u8>,
}

/// The kind that needs no arrangement with the network: its router finds each pod by neighbour discovery.
pub const DEFAULT: &str = "on-link";

/// All kinds. Sources of what clouds do: docs/NETWORK.md.
pub static PROFILES: [Profile; 4] = [
    Profile {
        name: DEFAULT,
        ndp: Ndp::Answer,
        mtu: None,
        prefix_lengths: 96..=96,
    },
    Profile {
        name: "routed",
        ndp: Ndp::Routed,
        mtu: None,
        prefix_lengths: 64..=96,
    },
    // A /80 is delegated to the interface, and frames count only with the interface's own link-layer address, as all of a
    // node's have. Whether each address is asked for is not documented, so answers are ready.
    Profile {
        name: "aws",
        ndp: Ndp::Answer,
        mtu: Some(9_001),
        prefix_lengths: 80..=96,
    },
    // A /96 belongs to the machine, whose own address is in it. The same doubt, the same answers.
    Profile {
        name: "gcp",
        ndp: Ndp::Answer,
        mtu: Some(1_460),
        prefix_lengths: 96..=96,
    },
];

/// The profile of that name.
pub fn named(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl Profile {
    /// What the network delivers, if packets of `mtu` bytes are larger.
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
        }
        assert!(named(DEFAULT).is_some());
        assert_eq!(named("nowhere"), None);
    }

    #[test]
    fn an_uplink_that_sends_more_than_the_network_delivers_is_told() {
        let gcp = named("gcp").unwrap();
        assert_eq!(gcp.exceeded_by(1_500), Some(1_460));
        assert_eq!(gcp.exceeded_by(1_460), None);
        assert_eq!(named(DEFAULT).unwrap().exceeded_by(65_535), None);
    }
}

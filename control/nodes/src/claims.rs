//! The prefixes and addresses that nodes claim. No two nodes that live have the same, and none has those of apps, Services or control.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::{AddressError, Place, Prefix, unusable};

/// Minimum length of a node prefix in bits: an agent uses the first /96 of what the network delivers.
const LENGTH_MIN: u8 = 96;

/// What a node claims for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claim {
    /// The prefix of its pods; none: another plugin gives them their addresses.
    prefix: Option<Prefix>,
    /// Its own address, if it says one.
    address: Option<IpAddr>,
}

/// Why a claim is refused. Texts of the node are not part of the message where they can be long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The prefix is none.
    #[error(
        "the prefix that node {node} claims is no IPv6 prefix of at least {LENGTH_MIN} bits, such as 2001:db8:d0:0:0:1::/96"
    )]
    Malformed {
        /// The node.
        node: String,
    },
    /// The address is none.
    #[error("what node {node} claims as its address is no IP address")]
    NoAddress {
        /// The node.
        node: String,
    },
    /// No host has such an address.
    #[error("node {node} claims {claimed}, which {why}")]
    Unusable {
        /// The node.
        node: String,
        /// The prefix or the address.
        claimed: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The cluster uses it.
    #[error("node {node} claims {claimed}, in which {by} of the control plane is")]
    Reserved {
        /// The node.
        node: String,
        /// The prefix or the address.
        claimed: String,
        /// The network of VIPs, of cluster IPs, of an activator or of control.
        by: Prefix,
    },
    /// Another node has it.
    #[error(
        "node {node} claims {claimed}, and node {by} has {held}: give one of them another; one of a node that is gone is free when its lease has expired"
    )]
    Taken {
        /// The node.
        node: String,
        /// The prefix or the address.
        claimed: String,
        /// The other node.
        by: String,
        /// Its prefix or address.
        held: String,
    },
}

impl Claim {
    /// A node's claim, from the texts that it sends; an empty one claims nothing.
    pub fn parse(node: &str, prefix: &str, address: &str) -> Result<Self, Refused> {
        let node = || node.to_owned();
        let prefix = (!prefix.is_empty()).then(|| {
            let parsed = prefix.parse::<Prefix>().ok();
            let parsed = parsed.filter(|one| one.is_ipv6() && one.length() >= LENGTH_MIN);
            parsed.ok_or_else(|| Refused::Malformed { node: node() })
        });
        let address = (!address.is_empty()).then(|| {
            let parsed = address.parse::<IpAddr>();
            parsed.map_err(|_error| Refused::NoAddress { node: node() })
        });
        let claim = Self {
            prefix: prefix.transpose()?,
            address: address.transpose()?,
        };
        for one in claim.networks() {
            if let Some(why) = unusable(one.first()) {
                let (node, claimed) = (node(), text(&one));
                return Err(Refused::Unusable { node, claimed, why });
            }
        }
        Ok(claim)
    }

    /// The place of the node's pods.
    pub fn place(&self) -> Place {
        Place::new(
            self.prefix.into_iter().collect(),
            self.address.into_iter().collect(),
        )
    }

    fn networks(self) -> impl Iterator<Item = Prefix> {
        self.prefix
            .into_iter()
            .chain(self.address.map(Prefix::host))
    }
}

/// The claims of the nodes that live: each is held until the node's lease has expired.
#[derive(Debug, Default)]
pub struct Claims {
    /// Networks that no node has: of VIPs, cluster IPs and activators.
    reserved: Vec<Prefix>,
    /// Control's own addresses. A node on its host may have one; a prefix must not contain one, and no pod has one.
    own: Vec<IpAddr>,
    nodes: HashMap<String, Claim>,
    /// The prefixes, of which no two overlap, by their first address.
    prefixes: BTreeMap<IpAddr, (Prefix, String)>,
    addresses: BTreeMap<IpAddr, String>,
}

impl Claims {
    /// No claims, in a cluster with these networks and these addresses of control.
    pub fn new(reserved: Vec<Prefix>, own: Vec<IpAddr>) -> Self {
        Self {
            reserved,
            own,
            ..Self::default()
        }
    }

    /// Refuses a claim on what another node or the control plane has.
    pub fn check(&self, node: &str, claim: &Claim) -> Result<(), Refused> {
        let hosts = self.own.iter().copied().map(Prefix::host);
        for one in claim.networks() {
            let is_prefix = claim.prefix == Some(one);
            let own = hosts.clone().filter(|_| is_prefix);
            if let Some(by) = self
                .reserved
                .iter()
                .copied()
                .chain(own)
                .find(|by| by.overlaps(&one))
            {
                return Err(Refused::Reserved {
                    node: node.to_owned(),
                    claimed: text(&one),
                    by,
                });
            }
            if let Some((held, by)) = self.holder(&one, node) {
                return Err(Refused::Taken {
                    node: node.to_owned(),
                    claimed: text(&one),
                    by: by.to_owned(),
                    held: text(&held),
                });
            }
        }
        Ok(())
    }

    /// Keeps a node's claim, which has been checked, in place of its earlier one.
    pub fn hold(&mut self, node: &str, claim: Claim) {
        self.release(node);
        if let Some(prefix) = claim.prefix {
            let held = (prefix, node.to_owned());
            self.prefixes.insert(prefix.first(), held);
        }
        if let Some(address) = claim.address {
            self.addresses.insert(address, node.to_owned());
        }
        self.nodes.insert(node.to_owned(), claim);
    }

    /// A node is gone: others may have what it had.
    pub fn release(&mut self, node: &str) {
        let Some(claim) = self.nodes.remove(node) else {
            return;
        };
        if let Some(prefix) = claim.prefix {
            self.prefixes.remove(&prefix.first());
        }
        if let Some(address) = claim.address {
            self.addresses.remove(&address);
        }
    }

    /// The place of the pods of a node; an empty one if it has claimed nothing.
    pub fn place_of(&self, node: &str) -> Place {
        self.nodes.get(node).map(Claim::place).unwrap_or_default()
    }

    /// Refuses an address of a pod that a node, with this place, cannot give it.
    pub fn check_pod(
        &self,
        (node, place): (&str, &Place),
        address: IpAddr,
        host_network: bool,
    ) -> Result<(), AddressError> {
        self.check_free(address)?;
        place.check(address, host_network)?;
        match self.holder(&Prefix::host(address), node) {
            Some((_, by)) => Err(AddressError::Taken {
                address,
                by: by.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses an address at which a Service is to answer outside, if it is one of the control plane, or of the pods of a node: all nodes
    /// would send the Service's backends what is for these. It may be a node's own, as in Kubernetes.
    pub fn check_external(&self, address: IpAddr) -> Result<(), AddressError> {
        self.check_free(address)?;
        let around = self.prefixes.range(..=address).next_back();
        match around.filter(|(_, (prefix, _))| prefix.contains(address)) {
            Some((_, (_, by))) => Err(AddressError::Taken {
                address,
                by: by.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses an address that no host has, or the control plane.
    fn check_free(&self, address: IpAddr) -> Result<(), AddressError> {
        if let Some(why) = unusable(address) {
            return Err(AddressError::Unusable { address, why });
        }
        let one = Prefix::host(address);
        if let Some(by) = self.reserved.iter().find(|by| by.overlaps(&one)) {
            return Err(AddressError::Reserved { address, by: *by });
        }
        if self.own.contains(&address) {
            return Err(AddressError::Reserved { address, by: one });
        }
        Ok(())
    }

    /// What another node has of a network.
    fn holder(&self, one: &Prefix, node: &str) -> Option<(Prefix, &str)> {
        let inside = one.first()..=one.last();
        let around = self.prefixes.range(..=one.first()).next_back();
        let prefixes = self.prefixes.range(inside.clone()).chain(around);
        let prefixes = prefixes.map(|(_, (held, by))| (*held, by.as_str()));
        let addresses = self.addresses.range(inside);
        let addresses = addresses.map(|(held, by)| (Prefix::host(*held), by.as_str()));
        prefixes
            .chain(addresses)
            .find(|(held, by)| *by != node && held.overlaps(one))
    }
}

/// A network, or the address of a network that has one.
fn text(network: &Prefix) -> String {
    if *network == Prefix::host(network.first()) {
        network.first().to_string()
    } else {
        network.to_string()
    }
}

#[cfg(test)]
mod tests;

//! The node as its Node object describes it: the prefixes of its pods and its addresses, unless flags give them. Pure.
//!
//! Reading order: what the object says ([`Described`]), what the node uses ([`Place`], [`choose`]) or what it lacks ([`NoPods`],
//! [`Missing`]), what an operator must know about it ([`problems`]), and the copy for a start without a server ([`saved`]).

mod missing;
mod problem;
pub mod saved;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_agent_pod::{Ipv4Range, NodePrefix};
use dormouse_agent_services::{Family, Prefix};
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use crate::profile::{Assigned, Profile};

pub use missing::{Missing, NoPods};
pub use problem::{Problem, changed, overlapping, problems};

/// Length of the prefix that a node uses of the delivered one, in bits.
pub const NODE_PREFIX_LENGTH: u8 = 96;
/// Length of the longest network that the pod network covers, in bits; of a larger podCIDR the first one counts.
const DELIVERED_LENGTH_MIN: u8 = 64;
/// The type of the addresses in a Node's status that count.
const INTERNAL: &str = "InternalIP";

/// What a Node object says about its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Described {
    /// `metadata.name`.
    pub name: String,
    /// `spec.podCIDRs`; empty until they are assigned.
    pub pod_cidrs: Vec<String>,
    /// The addresses of type InternalIP of `status.addresses`, in their order.
    pub addresses: Vec<IpAddr>,
    /// The prefix that the machine's metadata service names, where the network has one; it is not part of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_metadata: Option<String>,
}

/// What the flags give; they count before the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `--prefix`.
    pub prefix: Option<GivenPrefix>,
    /// `--prefix4`.
    pub prefix4: Option<Ipv4Range>,
    /// `--address`.
    pub address: Option<Ipv6Addr>,
    /// `--address4`.
    pub address4: Option<Ipv4Addr>,
}

/// The value of `--prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenPrefix {
    /// `none`: another plugin wires the pods.
    None,
    /// The prefix that the network delivers to the node.
    Delivered(NodePrefix),
}

/// The networks of a node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRanges {
    /// The prefix that the network delivers to the node.
    pub delivered: NodePrefix,
    /// The /96 of it that pods get addresses of.
    pub prefix: NodePrefix,
    /// The range of their IPv4 addresses, if they have any.
    pub range4: Option<Ipv4Range>,
}

impl PodRanges {
    /// The ranges with the first /96 of a delivered prefix.
    pub fn of_delivered(delivered: NodePrefix, range4: Option<Ipv4Range>) -> Option<Self> {
        let length = delivered.length().max(NODE_PREFIX_LENGTH);
        Some(Self {
            delivered,
            prefix: NodePrefix::new(delivered.network(), length).ok()?,
            range4,
        })
    }
}

/// What a node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The networks of its pods, or why it has none.
    pub pods: Result<PodRanges, NoPods>,
    /// Its IPv6 address.
    pub address: Option<Ipv6Addr>,
    /// Its IPv4 address.
    pub address4: Option<Ipv4Addr>,
}

impl Described {
    /// What this object says.
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let cidrs = spec
            .and_then(|spec| spec.pod_cidrs.clone())
            .filter(|all| !all.is_empty());
        let first = || {
            spec.and_then(|spec| spec.pod_cidr.clone())
                .filter(|cidr| !cidr.is_empty())
        };
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        let internal = addresses
            .into_iter()
            .flatten()
            .filter(|address| address.type_ == INTERNAL);
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            pod_cidrs: cidrs.unwrap_or_else(|| first().into_iter().collect()),
            addresses: internal
                .filter_map(|address| address.address.parse().ok())
                .collect(),
            in_metadata: None,
        }
    }

    /// The prefix of the metadata, in a network whose machines find it there.
    fn in_metadata(&self, profile: &Profile) -> Option<&String> {
        let found = self.in_metadata.as_ref();
        found.filter(|_| profile.assigned == Assigned::InMetadata)
    }

    /// The first address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|address| Family::of(*address) == family)
    }
}

impl Given {
    /// Whether the machine's metadata service may name the prefix that this object does not have.
    pub fn asks_metadata(&self, profile: &Profile, described: &Described) -> bool {
        let has_ipv6 = described.pod_cidrs.iter().any(|cidr| cidr.contains(':'));
        profile.assigned == Assigned::InMetadata && self.prefix.is_none() && !has_ipv6
    }

    /// Whether the Node object is needed.
    pub fn needs_node(&self) -> bool {
        self.prefix.is_none() || self.address.is_none() && self.address4.is_none()
    }

    /// The primary address of each family, by flags and by what the object says now: of its addresses, those of this machine
    /// (`local`) count.
    pub fn primary(&self, described: Option<&Described>, local: &[IpAddr]) -> Vec<IpAddr> {
        let from = |family| {
            let found = described.and_then(|described| described.address(family));
            found.filter(|address| local.contains(address))
        };
        let v6 = self.address.map(IpAddr::V6).or_else(|| from(Family::V6));
        let v4 = self.address4.map(IpAddr::V4).or_else(|| from(Family::V4));
        v6.into_iter().chain(v4).collect()
    }
}

/// What the node uses. `local`: the addresses of this machine.
pub fn choose(
    given: &Given,
    profile: &Profile,
    node: &str,
    described: Option<&Described>,
    local: &[IpAddr],
) -> Result<Place, Missing> {
    let address6 = address(
        given.address.map(IpAddr::V6),
        Family::V6,
        node,
        described,
        local,
    );
    let own = address6.as_ref().ok().copied().flatten().and_then(v6);
    let pods = pods(given, profile, node, (described, own))?;
    let address4 = address(
        given.address4.map(IpAddr::V4),
        Family::V4,
        node,
        described,
        local,
    );
    // Pods need one of their family; Services any.
    let is_enough =
        matches!(&address6, Ok(Some(_))) || pods.is_err() && matches!(&address4, Ok(Some(_)));
    if !is_enough {
        address6?;
        if pods.is_err() {
            address4?;
        }
        return Err(match described {
            None => Missing::Node(node.to_owned()),
            Some(_) => Missing::Address {
                node: node.to_owned(),
                family: Family::V6.name(),
                flag: flag(Family::V6),
            },
        });
    }
    Ok(Place {
        pods,
        address: address6.ok().flatten().and_then(v6),
        address4: address4.ok().flatten().and_then(v4),
    })
}

/// The address of a family: the flag's, or the object's if this machine has it.
fn address(
    given: Option<IpAddr>,
    family: Family,
    node: &str,
    described: Option<&Described>,
    local: &[IpAddr],
) -> Result<Option<IpAddr>, Missing> {
    if given.is_some() {
        return Ok(given);
    }
    let found = described.and_then(|described| described.address(family));
    match found.filter(|address| !local.contains(address)) {
        None => Ok(found),
        Some(address) => Err(Missing::Elsewhere {
            node: node.to_owned(),
            address,
            flag: flag(family),
        }),
    }
}

fn flag(family: Family) -> &'static str {
    match family {
        Family::V6 => "--address",
        Family::V4 => "--address4",
    }
}

fn pods(
    given: &Given,
    profile: &Profile,
    node: &str,
    (described, own): (Option<&Described>, Option<Ipv6Addr>),
) -> Result<Result<PodRanges, NoPods>, Missing> {
    match given.prefix {
        Some(GivenPrefix::None) => return Ok(Err(NoPods::Asked)),
        Some(GivenPrefix::Delivered(delivered)) => {
            let ranges = PodRanges::of_delivered(delivered, given.prefix4);
            return Ok(ranges.ok_or(NoPods::Asked));
        }
        None => {}
    }
    let described = described.ok_or_else(|| Missing::Node(node.to_owned()))?;
    let is_assigned = described.in_metadata(profile).is_some()
        || own.and_then(|own| profile.assigned_to(own)).is_some();
    if described.pod_cidrs.is_empty() && !is_assigned {
        return Err(missing_ranges(profile, node));
    }
    Ok(assigned(profile, described, own))
}

fn missing_ranges(profile: &Profile, node: &str) -> Missing {
    let (node, name) = (node.to_owned(), profile.name);
    match profile.assigned {
        Assigned::WithAddress(_) => Missing::Assigned {
            node,
            profile: name,
        },
        Assigned::InMetadata => Missing::Metadata {
            node,
            profile: name,
        },
        Assigned::Unknown => Missing::PodCidrs(node),
    }
}

/// The ranges that are assigned to the node: those of its object, and where that has no IPv6 range, the prefix of its own address or of
/// its metadata, if the network assigns it.
fn assigned(
    profile: &Profile,
    described: &Described,
    own: Option<Ipv6Addr>,
) -> Result<PodRanges, NoPods> {
    let unusable = |cidr: &str, why: String| NoPods::Unusable {
        node: described.name.clone(),
        cidr: cidr.to_owned(),
        why,
    };
    let (mut ipv6, mut ipv4) = (own.and_then(|own| profile.assigned_to(own)), None);
    // A range of the object replaces what is in the metadata.
    for cidr in described
        .in_metadata(profile)
        .into_iter()
        .chain(&described.pod_cidrs)
    {
        let parsed =
            Prefix::parse(cidr).ok_or_else(|| unusable(cidr, "it is not a range".to_owned()))?;
        match parsed.address() {
            IpAddr::V6(network) => {
                let delivered = delivered(profile, network, parsed.length());
                ipv6 = Some(delivered.map_err(|why| unusable(cidr, why))?);
            }
            IpAddr::V4(network) => {
                let range = Ipv4Range::new(network, parsed.length());
                ipv4 = Some(range.map_err(|error| unusable(cidr, error.to_string()))?);
            }
        }
    }
    let ranges = ipv6.and_then(|delivered| PodRanges::of_delivered(delivered, ipv4));
    ranges.ok_or_else(|| NoPods::NoIpv6 {
        node: described.name.clone(),
        cidrs: described.pod_cidrs.clone(),
    })
}

/// The part of an assigned range that the pod network covers: packets to the rest of it are rejected, where the network routes
/// all of it to the node; elsewhere the rest of it may belong to other hosts.
fn delivered(profile: &Profile, network: Ipv6Addr, length: u8) -> Result<NodePrefix, String> {
    if length > NODE_PREFIX_LENGTH {
        return Err(format!(
            "pods need a /{NODE_PREFIX_LENGTH} or a larger range; set --node-cidr-mask-size-ipv6 of kube-controller-manager"
        ));
    }
    let length = length.max(DELIVERED_LENGTH_MIN);
    let length = if profile.prefix_lengths.contains(&length) {
        length
    } else {
        NODE_PREFIX_LENGTH
    };
    NodePrefix::new(network, length).map_err(|error| error.to_string())
}

fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

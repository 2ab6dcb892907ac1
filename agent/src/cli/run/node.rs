//! The flags of `run` about the node: its name, uplink and network, the prefix of its pods, and its addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use dormouse_agent_pod::{Ipv4Range, NodePrefix};

use crate::own_node::{Given, GivenPrefix};
use crate::profile::{self, Profile};

/// The value of `--prefix` for nodes whose pods another plugin wires.
const NO_PODS: &str = "none";
/// Maximum length of the first bridge's name, in bytes.
const BRIDGE_LEN_MAX: usize = 12;

/// The flags about the node.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeOptions {
    /// Name of this node
    #[arg(long, env = "DORMOUSE_NODE")]
    pub node: String,
    /// Interface to the network outside of the node; never added to a bridge
    #[arg(long, env = "DORMOUSE_UPLINK", default_value = "eth0")]
    pub uplink: String,
    /// First bridge of the pods; created if it does not exist
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0", value_parser = bridge)]
    pub bridge: String,
    /// Kind of network, which decides how the node's prefix is delivered and pods are announced
    #[arg(
        long,
        env = "DORMOUSE_NETWORK_PROFILE",
        default_value = profile::DEFAULT,
        value_parser = network_profile()
    )]
    pub network_profile: &'static Profile,
    /// IPv6 prefix routed to this node: a /96 like 2001:db8:d0:0:0:1::/96, or what the cloud delegates (AWS: a /80), of which the first /96 is used;
    /// `none`: another plugin wires the pods [default with an API server: podCIDRs of the Node object]
    #[arg(long, env = "DORMOUSE_PREFIX")]
    pub prefix: Option<String>,
    /// IPv4 range routed to this node, like 10.244.7.0/24: pods get an IPv4 address of it besides the IPv6 one; used with --prefix
    #[arg(long, env = "DORMOUSE_PREFIX4")]
    pub prefix4: Option<Ipv4Range>,
    /// IPv6 address of this node, on the uplink [default with an API server: InternalIP of the Node object]
    #[arg(long, env = "DORMOUSE_ADDRESS")]
    pub address: Option<Ipv6Addr>,
    /// IPv4 address of this node, if it has one [default with an API server: InternalIP of the Node object]
    #[arg(long, env = "DORMOUSE_ADDRESS4")]
    pub address4: Option<Ipv4Addr>,
}

/// Parses the name of a network profile.
pub(crate) fn network_profile() -> impl TypedValueParser<Value = &'static Profile> {
    let names = PossibleValuesParser::new(profile::PROFILES.each_ref().map(|profile| profile.name));
    names.try_map(|name| profile::named(&name).ok_or("no such profile"))
}

/// Checks the first bridge's name, which must leave room for the numbers of further bridges.
fn bridge(name: &str) -> Result<String, String> {
    if (1..=BRIDGE_LEN_MAX).contains(&name.len()) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "use a name of 1 to {BRIDGE_LEN_MAX} bytes: the kernel allows 15, and further bridges append a number"
    ))
}

impl NodeOptions {
    /// What these flags give, checked.
    pub(crate) fn given(&self) -> Result<Given> {
        let prefix = self
            .prefix
            .as_deref()
            .map(|text| self.prefix(text))
            .transpose()?;
        Ok(Given {
            prefix,
            prefix4: self.prefix4,
            address: self.address,
            address4: self.address4,
        })
    }

    fn prefix(&self, text: &str) -> Result<GivenPrefix> {
        if text == NO_PODS {
            return Ok(GivenPrefix::None);
        }
        let prefix: NodePrefix = text.parse().map_err(|error| {
            anyhow::anyhow!("--prefix {text:?}: {error}; write it like 2001:db8:d0:0:0:1::/96")
        })?;
        let profile = self.network_profile;
        ensure!(
            profile.prefix_lengths.contains(&prefix.length()),
            "--prefix {text}: --network-profile {} needs a prefix length of {} to {} bits; write it like 2001:db8:d0:0:0:1::/96",
            profile.name,
            profile.prefix_lengths.start(),
            profile.prefix_lengths.end()
        );
        Ok(GivenPrefix::Delivered(prefix))
    }
}

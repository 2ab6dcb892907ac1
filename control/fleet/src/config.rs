//! The configuration of the fleet's root.

use std::net::IpAddr;
use std::time::Duration;

use dormouse_nodes::Prefix;

use crate::lease::LEASE_DEFAULT;
use crate::proto::NodeConfig;

/// The configuration of the fleet's root.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The node lease.
    pub lease: Duration,
    /// Increases with every start of control, also if its store begins empty: nodes refuse a root with a lower one.
    pub epoch: u64,
    /// Sent to every node in the first message of a stream.
    pub node_config: NodeConfig,
    /// Boot id of this machine. Timestamps of nodes with another one are converted to this machine's clock.
    pub boot_id: String,
    /// Networks of which no node and no pod has an address, beside those of `node_config`: those of cluster IPs.
    pub reserved: Vec<Prefix>,
    /// Control's own addresses, which no pod has.
    pub own: Vec<IpAddr>,
}

impl ServerConfig {
    /// The default lease, on this machine.
    pub fn new(epoch: u64, node_config: NodeConfig) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default();
        Self {
            lease: LEASE_DEFAULT,
            epoch,
            node_config,
            boot_id,
            reserved: Vec::new(),
            own: Vec::new(),
        }
    }

    /// The networks of which no node and no pod has an address.
    pub(crate) fn reserved(&self) -> Vec<Prefix> {
        let vips = self.node_config.vip_ranges.iter().map(|one| &one.prefix);
        let activators = self.node_config.activators.iter().map(|one| &one.prefix);
        let sent = vips.chain(activators).filter_map(|text| text.parse().ok());
        sent.chain(self.reserved.iter().copied()).collect()
    }
}

//! The configuration of the fleet's root.

use std::time::Duration;

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
        }
    }
}

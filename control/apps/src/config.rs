//! The configuration of the controller.

use std::time::Duration;

use dormouse_cluster::VipRange;

use crate::admission::Limits;

/// The controller's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's VIP ranges.
    pub ranges: Vec<VipRange>,
    /// Time in proxy mode before an app's last pod is removed.
    pub scale_to_zero_grace: Duration,
    /// Interval of scaling decisions; apps with a window of at most 10 s decide every second.
    pub tick: Duration,
    /// Epoch of this control; only the highest may remove pods.
    pub epoch: u64,
    /// The node lease: for this long, nodes that are in the store may connect after a start.
    pub node_lease: Duration,
    /// The limits of wakes and pods.
    pub limits: Limits,
}

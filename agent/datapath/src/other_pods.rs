//! Pods of another CNI plugin on this node, as during a migration: the host's stack delivers connections to them.

use std::net::IpAddr;

use dormouse_agent_services::{Changes, PortChange};

use super::{Datapath, DatapathError, octets};

impl Datapath {
    /// Prepares the programs for backends on this node that are pods of another CNI plugin. To be called with the same changes
    /// before [`ServiceTable::serve`](super::ServiceTable::serve). `node` has all addresses of the node: backends there are not pods.
    pub fn expect_pods_of_others(
        &self,
        changes: &Changes,
        node: &[IpAddr],
    ) -> Result<(), DatapathError> {
        let facts = self.facts.current()?;
        if facts.unseen_pods != 0 {
            return Ok(());
        }
        let ports = changes.ports.iter().filter_map(PortChange::after);
        let mut backends = ports.flat_map(|port| port.backends.iter());
        // One that is not ready may be a pod that the agent has just removed.
        let is_of_others = backends.any(|backend| {
            let address = octets(backend.address);
            backend.local
                && backend.for_cluster
                && !facts.is_local(&address)
                && !node.contains(&backend.address)
                && !self.pods.has(address.into())
        });
        if is_of_others {
            self.facts.expect_unseen()?;
        }
        Ok(())
    }
}

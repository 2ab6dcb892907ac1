//! The bridges while they are in use. One that was down, or whose MTU was too small for IPv6, has lost its addresses, and its pods their
//! routes and neighbour entries: all are set again. A bridge that was deleted is created by the next agent.

use std::collections::HashSet;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use super::{Network, machine};
use crate::error::NetworkError;
use crate::recovery::PodLink;
use crate::shards;
use crate::{GATEWAY, bridge};

/// The interfaces of the node that are up.
pub(super) struct Up {
    /// Their names.
    pub(super) names: HashSet<String>,
    /// The names of those with the gateway's address.
    pub(super) gateways: HashSet<String>,
}

impl Up {
    pub(super) fn read() -> Result<Self, NetworkError> {
        let all =
            getifaddrs().map_err(|errno| machine("list the node's interfaces")(errno.into()))?;
        let (mut names, mut gateways) = (HashSet::new(), HashSet::new());
        for entry in all.filter(|entry| entry.flags.contains(InterfaceFlags::IFF_UP)) {
            let address = entry.address.as_ref();
            let address = address.and_then(|one| one.as_sockaddr_in6());
            if address.is_some_and(|one| one.ip() == GATEWAY) {
                gateways.insert(entry.interface_name.clone());
            }
            names.insert(entry.interface_name);
        }
        Ok(Self { names, gateways })
    }
}

impl Network {
    /// The bridges with their names; an error if one of them was deleted.
    pub(super) fn existing_bridges(&self) -> Result<Vec<(String, u32)>, NetworkError> {
        let bridges: Vec<u32> = self.shards.lock().bridges().collect();
        let bridges = bridges.into_iter().enumerate().map(|(place, bridge)| {
            let name = shards::name(&self.config.bridge, place);
            let exists = if_nametoindex(name.as_str()).ok() == Some(bridge);
            if exists {
                Ok((name, bridge))
            } else {
                Err(NetworkError::BridgeDeleted(name))
            }
        });
        bridges.collect()
    }

    /// Sets up again the bridges that have lost their addresses, and the routes of their pods.
    pub(super) fn repair_bridges(&self, pods: &[PodLink]) -> Result<(), NetworkError> {
        // Only an agent that starts creates bridges; STATUS fails until then.
        let Ok(bridges) = self.existing_bridges() else {
            return Ok(());
        };
        let whole = Up::read()?.gateways;
        let broken: Vec<(String, u32)> = bridges
            .into_iter()
            .filter(|(name, _)| !whole.contains(name))
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        for (name, _) in &broken {
            tracing::warn!(
                bridge = name,
                "the bridge was down or has lost its addresses; setting it up, and the routes of its pods"
            );
        }
        let config = &self.config;
        bridge::ensure(
            &config.bridge,
            &config.uplink,
            &config.refused(),
            &config.bridge_options(),
        )?;
        let is_affected = |pod: &&PodLink| {
            let on = pod.controller;
            broken.iter().any(|(_, bridge)| on == Some(*bridge))
        };
        let addresses4 = self.addresses4();
        let routes = pods.iter().filter(is_affected);
        let routes = routes.flat_map(|pod| self.routes(pod, &addresses4));
        Ok(self.batch.send(routes.collect())?)
    }
}

//! Recovery at start: routes and entries of live pods are written again, leftovers are removed.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use dormouse_agent_ipam::{Lease, LeasesError, Suffix};
use dormouse_agent_netlink::Request;

use super::{Network, pod_links, reserve};
use crate::error::NetworkError;
use crate::messages;
use crate::metrics::Repaired;
use crate::recovery::{self, PodLink, Repair};

impl Network {
    /// Makes journal, kernel and data path consistent. Returns the number of live pods.
    pub(super) fn repair(&self) -> Result<usize, NetworkError> {
        let links = pod_links()?;
        let mut shards = self.shards.lock();
        for link in &links {
            if let Some(bridge) = link.controller {
                shards.found(link.suffix, bridge);
            }
        }
        let bridges: Vec<u32> = shards.bridges().collect();
        drop(shards);
        let leases = self.leases.leases();
        let ours = leases.iter().map(AsRef::as_ref);
        let ours = ours.filter(|lease| !reserve::is_reservation(lease));
        let plan = recovery::plan(ours, &links, &bridges);
        let mut living = Vec::new();
        for repair in plan {
            living.extend(self.repair_one(repair)?);
        }
        self.rejoin(&living)?;
        let addresses4 = self.addresses4();
        let routes = |link| self.routes(link, &addresses4);
        self.batch.send(living.iter().flat_map(routes).collect())?;
        self.apply_mtu(&living)?;
        for link in &living {
            self.publish_link(link, addresses4.get(&link.suffix).copied())?;
        }
        Ok(living.len())
    }

    /// Makes live pods ports of a bridge again whose bridge was deleted.
    fn rejoin(&self, living: &[PodLink]) -> Result<(), NetworkError> {
        let mut requests = Vec::new();
        for link in living.iter().filter(|link| link.controller.is_none()) {
            tracing::warn!(
                address = %self.address(link.suffix),
                "a pod's link was on no bridge; attaching it again"
            );
            let bridge = self.place(link.suffix)?;
            requests.extend(messages::rejoin(link.ifindex, link.mac(), bridge));
            self.wiring.repaired(Repaired::Link);
        }
        Ok(self.batch.send(requests)?)
    }

    /// Repairs one lease or link. Returns the pod's link, if the pod is live.
    fn repair_one(&self, repair: Repair) -> Result<Option<PodLink>, NetworkError> {
        match repair {
            Repair::Keep(link) => Ok(Some(link)),
            Repair::Adopt(lease, link) => Ok(self.adopt(lease)?.then_some(link)),
            Repair::Unwire(lease) => {
                tracing::info!(key = %lease.key, "freed the lease of a crash or a vanished pod");
                self.reclaim(&lease)?;
                Ok(None)
            }
            Repair::RemoveLink(name) => {
                tracing::warn!(link = name, "removed a pod link without a lease");
                self.remover.remove(&name, Vec::new())?;
                self.wiring.repaired(Repaired::Link);
                Ok(None)
            }
        }
    }

    /// Restores the lease of a pod that is missing in the journal; false if its address was leased to another pod. Such a pod
    /// must not stop the agent.
    fn adopt(&self, lease: Lease) -> Result<bool, NetworkError> {
        let without = lease.ipv4.is_some().then(|| Lease {
            ipv4: None,
            ..lease.clone()
        });
        for lease in [Some(lease), without].into_iter().flatten() {
            match self.leases.adopt(&lease) {
                Ok(()) => {
                    tracing::warn!(key = %lease.key, "restored the lease of a pod that is missing in the journal");
                    self.wiring.repaired(Repaired::Adopted);
                    return Ok(true);
                }
                Err(LeasesError::Allocate(error)) => {
                    tracing::error!(key = %lease.key, %error, ipv4 = lease.ipv4.is_some(), "failed to restore the lease of a pod that is missing in the journal");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The route and neighbour entries of a pod, written again in case they were deleted.
    pub(super) fn routes(
        &self,
        link: &PodLink,
        addresses4: &HashMap<Suffix, Ipv4Addr>,
    ) -> Vec<Request> {
        let Some(bridge) = self.shards.lock().bridge_of(link.suffix) else {
            return Vec::new();
        };
        let address4 = addresses4.get(&link.suffix).copied();
        messages::both(self.address(link.suffix), address4)
            .flat_map(|address| messages::host_route(address, link.mac(), bridge))
            .collect()
    }

    /// IPv4 addresses by suffix.
    pub(super) fn addresses4(&self) -> HashMap<Suffix, Ipv4Addr> {
        let leases = self.leases.leases().into_iter();
        leases
            .filter_map(|lease| Some((lease.suffix, lease.ipv4?)))
            .collect()
    }
}

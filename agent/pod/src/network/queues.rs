//! Pods' links with a queueing qdisc: packets to them must not be redirected past the host side, where the qdisc is. Links with
//! Dormouse's own limits are known from ADD; other plugins and operators can add a qdisc later.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_ipam::{Lease, State};

use super::Network;
use crate::PodEntry;
use crate::error::NetworkError;
use crate::recovery::PodLink;

impl Network {
    /// Reports links that got or lost a qdisc to the data path. `leases` must be read before the links: a link that is being
    /// created has no qdisc yet.
    pub(super) fn update_queues(
        &self,
        leases: &[Arc<Lease>],
        pods: &[PodLink],
    ) -> Result<(), NetworkError> {
        for pod in pods {
            if self.queued.lock().contains(&pod.suffix) == pod.queues {
                continue;
            }
            let lease = leases.iter().find(|lease| lease.suffix == pod.suffix);
            let Some(lease) = lease.filter(|lease| lease.state == State::Live) else {
                continue;
            };
            // Another request is working on the pod; the next reconciliation checks again.
            let Some(_busy) = self.in_work.enter(&lease.key, Duration::ZERO) else {
                continue;
            };
            if self.leases.lease(&lease.key).as_ref() == Some(lease) {
                tracing::info!(key = %lease.key, queue = pod.queues, "the qdisc of a pod's link changed");
                self.publish_link(pod, lease.ipv4)?;
            }
        }
        Ok(())
    }

    /// Updates the pod's row in the data path from its link.
    pub(super) fn publish_link(
        &self,
        link: &PodLink,
        address4: Option<Ipv4Addr>,
    ) -> Result<(), NetworkError> {
        let entry = PodEntry {
            address: self.address(link.suffix),
            address4,
            ifindex: link.ifindex,
            mac: link.mac(),
            direct: !link.queues,
        };
        self.publish(link.suffix, entry)
    }
}

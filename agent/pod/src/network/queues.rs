//! On which pods' links packets may have to wait: what is for these must not be led past the host's end. Limits of ours are known
//! from the beginning; another plugin of a chain, or an operator, may give a link a queue later.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_ipam::{Lease, State};

use super::Network;
use crate::PodEntry;
use crate::error::NetworkError;
use crate::recovery::PodLink;

impl Network {
    /// Tells the data path of links that got a queue, or lost theirs. The `leases` are of before the pods' links were listed: a link
    /// that is still being made has no queue yet.
    pub(super) fn follow_queues(
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
            // Who works on the pod knows better; the next look comes.
            let Some(_busy) = self.in_work.enter(&lease.key, Duration::ZERO) else {
                continue;
            };
            if self.leases.lease(&lease.key).as_ref() == Some(lease) {
                tracing::info!(key = %lease.key, queue = pod.queues, "a pod's link has another queue");
                self.tell_of(pod, lease.ipv4)?;
            }
        }
        Ok(())
    }

    /// Tells the data path of a pod as its link is.
    pub(super) fn tell_of(
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
        self.tell(link.suffix, entry)
    }
}

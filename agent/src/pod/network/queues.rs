//! On which pods' links packets may have to wait: what is for these must not be led past the host's end. Limits of ours are known
//! from the beginning; another plugin of a chain, or an operator, may give a link a queue later.

use std::net::Ipv4Addr;
use std::time::Duration;

use dormouse_agent_ipam::State;

use super::{Network, lock};
use crate::pod::PodEntry;
use crate::pod::error::NetworkError;
use crate::pod::recovery::PodLink;

impl Network {
    /// Tells the data path of links that got a queue, or lost theirs.
    pub(super) fn follow_queues(&self, pods: &[PodLink]) -> Result<(), NetworkError> {
        for pod in pods {
            if lock(&self.queued).contains(&pod.suffix) == pod.queues {
                continue;
            }
            let Some(lease) = self.lease_of(pod) else {
                continue;
            };
            // Who works on the pod knows better; the next look comes.
            let Some(_busy) = self.busy.enter(&lease.key, Duration::ZERO) else {
                continue;
            };
            let held = self.leases.lease(&lease.key);
            if held.is_some_and(|held| held.since == lease.since && held.state == State::Live) {
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

//! DEL and garbage collection: removes pods on request, when the runtime no longer lists them, and when they vanished.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use dormouse_agent_ipam::{Lease, LeaseKey, State, Suffix};
use dormouse_cni::message::Attachment;
use dormouse_cni::pending::{self, PendingDel, since_boot};

use super::attach::PATIENCE;
use super::reserve::alive_reservations;
use super::{Network, boot_id, links, machine};
use crate::error::NetworkError;
use crate::metrics::Repaired;
use crate::recovery::PodLink;

/// Time after which the lease of a pod without a link is freed without DEL: a runtime whose DEL is late should find the lease.
const VANISHED_GRACE: Duration = Duration::from_mins(5);

impl Network {
    /// Removes an attachment, whatever exists of it; a missing one is no error.
    pub fn del(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        self.del_if(key, |_| true).map(drop)
    }

    /// Returns whether there was something to remove.
    fn del_if(
        &self,
        key: &LeaseKey,
        wanted: impl FnOnce(&Lease) -> bool,
    ) -> Result<bool, NetworkError> {
        let _busy = self
            .in_work
            .enter(key, PATIENCE)
            .ok_or_else(|| NetworkError::Busy(key.clone()))?;
        let lease = self.leases.lease(key);
        match lease.filter(|lease| wanted(lease)) {
            Some(lease) => self.unwire(&lease).map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes all attachments of a network but the valid ones (container, interface), as far as possible. Without a list, only
    /// those without a link are removed.
    pub fn gc(
        &self,
        network: &str,
        valid: Option<&[(String, String)]>,
    ) -> Result<(), NetworkError> {
        let Some(valid) = valid else {
            return self.reconcile_within(Duration::ZERO);
        };
        let valid: HashSet<(&str, &str)> = valid
            .iter()
            .map(|(container, ifname)| (container.as_str(), ifname.as_str()))
            .collect();
        let is_stale = |key: &LeaseKey| {
            key.network == network
                && !valid.contains(&(key.container.as_str(), key.ifname.as_str()))
        };
        // Attachments created from now on are newer than the list.
        let mut stale = self.leases.leases();
        stale.retain(|lease| lease.state != State::Reserved && is_stale(&lease.key));
        collect(stale.iter().map(|lease| {
            self.del_if(&lease.key, |now| now.since == lease.since)
                .map(drop)
        }))
    }

    /// Frees the leases of pods that vanished some time ago, completes interrupted removals, applies changes of the uplink's
    /// MTU and of the links' qdiscs, and repairs bridges.
    pub fn reconcile(&self) -> Result<(), NetworkError> {
        self.consume_pending()?;
        self.reconcile_within(VANISHED_GRACE)
    }

    fn reconcile_within(&self, grace: Duration) -> Result<(), NetworkError> {
        // Leases before links: a link that is created in between belongs to a lease that is not in the list.
        let leases = self.leases.leases();
        let links = links()?;
        let pods: Vec<PodLink> = links.iter().filter_map(PodLink::read).collect();
        self.apply_uplink_mtu(&links, &pods)?;
        self.repair_bridges(&pods)?;
        self.update_queues(&leases, &pods)?;
        let linked: HashSet<Suffix> = pods.iter().map(|link| link.suffix).collect();
        let alive = alive_reservations(leases.iter().map(AsRef::as_ref))?;
        let now = since_boot();
        let due = leases.iter().filter(|lease| match lease.state {
            State::Live => {
                let seen = linked.contains(&lease.suffix) || alive.contains(&lease.suffix);
                self.is_overdue(lease, seen, now, grace)
            }
            // A lease is in use while another request works on it: `del_if` waits for that, and calls this check afterwards.
            State::Reserved | State::Releasing => now > lease.since + PATIENCE,
        });
        collect(due.map(|lease| {
            let freed = self.del_if(&lease.key, |held| {
                held.since == lease.since && held.state == lease.state
            })?;
            if freed {
                self.wiring.repaired(Repaired::Lease);
            }
            Ok(())
        }))
    }

    fn is_overdue(&self, lease: &Lease, linked: bool, now: Duration, grace: Duration) -> bool {
        let mut missing = self.missing.lock();
        if linked {
            missing.remove(&lease.suffix);
            return false;
        }
        now >= *missing.entry(lease.suffix).or_insert(now) + grace
    }

    /// Runs the deletions that the plugin recorded while no agent answered.
    pub fn consume_pending(&self) -> Result<(), NetworkError> {
        let waiting = pending::read_all(&self.config.state_dir).map_err(machine(
            "read the deletions recorded while the agent was down",
        ))?;
        if waiting.is_empty() {
            return Ok(());
        }
        let boot = boot_id().map_err(machine("read the kernel's boot id"))?;
        for (path, pending) in waiting {
            let same_boot = dormouse_agent_ipam::BootId::parse(&pending.boot_id) == Some(boot);
            if same_boot {
                let asked_at = Duration::from_nanos(pending.at_ns);
                self.del_if(&key(&pending), |lease| lease.since < asked_at)?;
            }
            fs::remove_file(path).map_err(machine("delete the record of a completed deletion"))?;
        }
        Ok(())
    }
}

fn key(pending: &PendingDel) -> LeaseKey {
    let Attachment {
        network,
        container_id,
        ifname,
    } = pending.attachment.clone();
    LeaseKey {
        network,
        container: container_id,
        ifname,
    }
}

fn collect(results: impl Iterator<Item = Result<(), NetworkError>>) -> Result<(), NetworkError> {
    let failures: Vec<String> = results
        .filter_map(Result::err)
        .map(|error| error.chain())
        .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(NetworkError::Incomplete { failures })
    }
}

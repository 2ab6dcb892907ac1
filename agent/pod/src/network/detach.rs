//! Unwires pods: on request, when the runtime no longer knows them, and when they vanished without a word.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use dormouse_agent_ipam::{Lease, LeaseKey, State, Suffix};
use dormouse_cni::message::Attachment;
use dormouse_cni::pending::{self, PendingDel, since_boot};

use super::attach::PATIENCE;
use super::reserve::kept_alive;
use super::{Network, boot_id, links, machine};
use crate::error::NetworkError;
use crate::metrics::Healed;
use crate::recovery::PodLink;

/// How long a pod's link may be missing before its lease is freed without DEL: a runtime that is slow to call DEL
/// should find what it expects.
const VANISHED_GRACE: Duration = Duration::from_mins(5);

impl Network {
    /// Unwires an attachment, whatever is left of it; one that is not there is no error.
    pub fn del(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        self.del_if(key, |_| true).map(drop)
    }

    /// Whether there was something to unwire.
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

    /// Unwires all of a network but the valid attachments (container, interface), as far as possible. Without a list
    /// only those go whose links are gone.
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
        // Attachments that appear from now on are newer than the list.
        let mut stale = self.leases.leases();
        stale.retain(|lease| lease.state != State::Reserved && is_stale(&lease.key));
        collect(stale.iter().map(|lease| {
            self.del_if(&lease.key, |now| now.since == lease.since)
                .map(drop)
        }))
    }

    /// Frees the leases of pods that vanished a while ago, finishes what could not be finished before, and follows the
    /// uplink.
    pub fn reconcile(&self) -> Result<(), NetworkError> {
        self.consume_pending()?;
        self.reconcile_within(VANISHED_GRACE)
    }

    fn reconcile_within(&self, grace: Duration) -> Result<(), NetworkError> {
        // Leases first: a link made in between belongs to a lease that is not looked at.
        let leases = self.leases.leases();
        let links = links()?;
        let pods: Vec<PodLink> = links.iter().filter_map(PodLink::read).collect();
        self.follow_mtu(&links, &pods)?;
        self.follow_queues(&leases, &pods)?;
        let linked: HashSet<Suffix> = pods.iter().map(|link| link.suffix).collect();
        let alive = kept_alive(leases.iter().map(AsRef::as_ref))?;
        let now = since_boot();
        let due = leases.iter().filter(|lease| match lease.state {
            State::Live => {
                let seen = linked.contains(&lease.suffix) || alive.contains(&lease.suffix);
                self.is_overdue(lease, seen, now, grace)
            }
            // In use unless nobody works on it, which `del_if` waits for and then looks again.
            State::Reserved | State::Releasing => now > lease.since + PATIENCE,
        });
        collect(due.map(|lease| {
            let freed = self.del_if(&lease.key, |held| {
                held.since == lease.since && held.state == lease.state
            })?;
            if freed {
                self.wiring.healed(Healed::Lease);
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

    /// Carries out the deletions that the plugin noted while no agent answered.
    pub fn consume_pending(&self) -> Result<(), NetworkError> {
        let waiting = pending::read_all(&self.config.state_dir)
            .map_err(machine("read the deletions noted while the agent was down"))?;
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
            fs::remove_file(path).map_err(machine("remove a deletion that is done"))?;
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

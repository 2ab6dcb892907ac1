//! Changes of service ports in the kernel's maps, and the health ports after them.

use std::sync::Arc;

use dormouse_agent_datapath::{DatapathError, ServiceFlows};
use dormouse_agent_inspect::services::SharedServices;
use dormouse_agent_services::{Changes, Family, PortId};
use dormouse_agent_sys::memory;
use tokio::task::JoinHandle;
use tracing::{debug, error, warn};

use super::{ServicesSync, report};
use crate::host_ports::{self, HostPortError};

/// After a change of more service ports than this, freed memory is returned to the kernel.
const LARGE: usize = 1_000;

/// The service ports of a change that could not be programmed completely; or why nothing of it is.
pub(super) type Shed = Result<Vec<(PortId, DatapathError)>, String>;

impl ServicesSync {
    /// Writes the changes to the kernel's maps, then updates the health check node ports.
    pub(super) async fn serve(&mut self, changes: Changes) -> Shed {
        for problem in &changes.problems {
            warn!(%problem, "service");
        }
        let is_large = changes.ports.len() > LARGE;
        // Health ports are the last part of a change.
        let waits = scans(&changes) || !changes.health.is_empty();
        let (services, datapath) = (Arc::clone(&self.services), Arc::clone(&self.datapath));
        let served = tokio::task::spawn_blocking(move || {
            let served = {
                let services = services.lock();
                let expected =
                    datapath.expect_pods_of_others(&changes, &services.node().addresses.local);
                expected.and_then(|()| datapath.services.serve(&services, &changes))
            };
            if waits {
                // After it no program makes a flow by what was replaced.
                datapath.grace();
                end_stale(&datapath.services.flows(), &services, &changes);
            }
            if is_large {
                memory::return_free_memory();
            }
            (served, changes)
        });
        let (changes, shed) = match served.await {
            Ok((Ok(served), changes)) => {
                for (port, reason) in &served.shed {
                    error!(%port, %reason, "a service port could not be programmed completely");
                }
                (changes, Ok(served.shed))
            }
            Ok((Err(error), changes)) => {
                error!(%error, "the data path refused a change");
                (changes, Err(error.to_string()))
            }
            Err(error) => {
                error!(%error, "a task failed; a change of Services is not programmed");
                return Err(error.to_string());
            }
        };
        if !waits {
            self.begin_grace();
        }
        for key in &changes.health {
            let answers = self.services.lock().health_checks(key);
            report(self.health.set(key, answers).await);
        }
        shed
    }

    /// Begins a grace period, after which rows that were replaced may be used again, unless one lasts: then the next change begins
    /// one. The next change does not wait for it.
    fn begin_grace(&mut self) {
        if self.grace.as_ref().is_none_or(JoinHandle::is_finished) {
            let datapath = Arc::clone(&self.datapath);
            self.grace = Some(tokio::task::spawn_blocking(move || datapath.grace()));
        }
    }

    /// Reports to the pods that wait for their ports whether these are served.
    pub(super) fn end_waits(&mut self, shed: &Shed) {
        let services = self.services.lock();
        for waiting in self.waiting.drain(..) {
            let verdict = match shed {
                Ok(shed) => host_ports::verdict(&services, &waiting.services, shed),
                Err(error) => Err(HostPortError::NotProgrammed(error.clone())),
            };
            waiting.end(verdict);
        }
    }
}

/// Whether UDP flows may be stale after the changes.
fn scans(changes: &Changes) -> bool {
    Family::ALL.into_iter().any(|family| changes.scans(family))
}

/// Deletes the UDP flows that the changes made stale.
fn end_stale(flows: &ServiceFlows, services: &SharedServices, changes: &Changes) {
    if !scans(changes) {
        return;
    }
    let ended = flows.end_stale(|flow| {
        changes.scans(Family::of(flow.destination)) && services.lock().is_stale(flow)
    });
    match ended {
        Ok(0) => {}
        Ok(ended) => debug!(ended, "stale UDP flows deleted"),
        Err(error) => warn!(%error, "stale UDP flows were not looked for"),
    }
}

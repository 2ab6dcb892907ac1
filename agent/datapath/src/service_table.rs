//! Services in the maps. A sync holds this part's own lock.

use std::sync::Arc;

use dormouse_agent_services::{Changes, Services};
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::cluster::{self, ClusterFacts};
use super::error::DatapathError;
use super::facts::NodeFacts;
use super::flows::{Flows, ServiceFlows};
use super::grace::Graces;
use super::load::Loaded;
use super::pool::Pool;
use super::services::{Calls, Ledger, Registry, Served};
use super::shared::Shared;

/// Used entries and capacity of a map.
pub(super) type Fill = (&'static str, usize, usize);

/// The Services of one node.
#[derive(Debug)]
pub struct ServiceTable {
    arrays: Arc<Arrays>,
    pool: Arc<Pool>,
    graces: Graces,
    facts: Arc<NodeFacts>,
    flows: Flows,
    /// Locked for a whole sync, with its grace periods.
    registry: Mutex<Registry>,
    /// As of the last sync, for readers that must not wait for the current one.
    fill: Mutex<[Fill; 4]>,
}

impl ServiceTable {
    pub(super) fn open(loaded: &mut Loaded, shared: &Shared) -> Result<Self, DatapathError> {
        let Shared {
            arrays,
            pool,
            graces,
            facts,
            flows,
        } = shared.clone();
        let calls = Calls::take(loaded)?;
        let registry = Registry::open(&arrays, calls, cluster::direct(&facts.current()?))?;
        Ok(Self {
            fill: Mutex::new(registry.fill()),
            registry: Mutex::new(registry),
            arrays,
            pool,
            graces,
            facts,
            flows,
        })
    }

    /// Sets the configuration of the node and its cluster. Must be called before [`ServiceTable::serve`], and when the node's
    /// addresses change. The slots of service ranges change only with the ranges.
    pub fn set_cluster(&self, cluster: &ClusterFacts) -> Result<(), DatapathError> {
        let mut registry = self.registry.lock();
        let node = &cluster.node;
        let mut direct = Vec::new();
        self.facts.change(|mut facts| {
            direct = registry.layout(node, cluster.low(&facts));
            cluster::fill(&mut facts, node, &direct)?;
            registry.set_local(&self.arrays, &node.addresses.local)?;
            Ok(facts)
        })?;
        registry.set_direct(&direct);
        registry.in_cluster = true;
        *self.fill.lock() = registry.fill();
        Ok(())
    }

    /// Writes the changes of one sync; the cost is proportional to them. Nothing that the previous agent left is removed before
    /// [`ServiceTable::settle`]. Service ports without room are in the result, and are retried later.
    pub fn serve(&self, services: &Services, changes: &Changes) -> Result<Served, DatapathError> {
        let mut registry = self.registry.lock();
        if !registry.in_cluster {
            return Err(DatapathError::NoCluster);
        }
        let mut served = registry.serve(self.ledger(services), changes);
        if registry.has_shed() {
            // Ids may be in quarantine: a grace period frees them.
            if !served.shed.is_empty() && self.pool.has_quarantined() {
                self.graces.begin().wait();
            }
            let again = registry.retry(self.ledger(services));
            served.retried(again, |port| registry.is_shed(port));
        }
        *self.fill.lock() = registry.fill();
        Ok(served)
    }

    /// Removes everything that no source has named; called when all sources are synced.
    pub fn settle(&self, services: &Services) -> Served {
        let mut registry = self.registry.lock();
        let served = registry.settle(self.ledger(services));
        *self.fill.lock() = registry.fill();
        served
    }

    /// The flows of Services, for [`ServiceFlows::end_stale`] after [`ServiceTable::serve`] and its grace period.
    pub fn flows(&self) -> ServiceFlows {
        self.flows.of_services()
    }

    /// Fill of the maps of Services, as of the last sync.
    pub(super) fn fill(&self) -> [Fill; 4] {
        *self.fill.lock()
    }

    fn ledger<'a>(&'a self, services: &'a Services) -> Ledger<'a> {
        Ledger {
            services,
            arrays: &self.arrays,
            pool: &self.pool,
        }
    }
}

//! Service synchronization: objects from a source become changes of service ports, which become writes to the kernel's maps.
//!
//! Reading order: the settings ([`Config`]), the source (`source`), the loop here ([`ServicesSync`]), changes in the kernel's maps
//! (`program`), and changes of this node (`own`).

mod config;
mod own;
mod program;
mod source;

use std::sync::Arc;
use std::time::Instant;

use dormouse_agent_datapath::{ClusterFacts, SharedDatapath};
use dormouse_agent_inspect::services::SharedServices;
use dormouse_agent_services::Services;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::addresses::{self, Addresses};
use crate::health::{self, Health, Listen, ProxyHealth};
use crate::host_ports::{HostPorts, Update, Waiting};
use crate::own_node::{Described, Given};
use own::apply;
use source::{Batch, Source};

pub use config::{Config, ServicesSyncError};
pub use source::Origin;

/// The synchronization of Services.
pub struct ServicesSync {
    source: Source,
    services: SharedServices,
    datapath: SharedDatapath,
    facts: ClusterFacts,
    addresses: Addresses,
    given: Option<Given>,
    /// What the Node object said last.
    described: Option<Described>,
    health: Health,
    proxy: Arc<ProxyHealth>,
    servers: JoinSet<()>,
    in_force: watch::Sender<bool>,
    host_ports: Arc<HostPorts>,
    /// The last grace period that no change waited for.
    grace: Option<JoinHandle<()>>,
    /// Who waits until the applied changes are programmed.
    waiting: Vec<Waiting>,
    /// Present until all objects are known and programmed for the first time.
    start: Option<Start>,
}

/// The first objects, up to the time at which they are complete.
struct Start {
    began: Instant,
    objects: usize,
    /// Whether all objects of the source are known.
    whole: bool,
}

impl ServicesSync {
    /// Programs the current objects, and only then removes what a previous agent left and no object needs. Returns when the
    /// objects of a folder are programmed; an API server is waited for by [`ServicesSync::run`], because it may be away.
    pub async fn open(
        config: Config,
        host_ports: Arc<HostPorts>,
        datapath: SharedDatapath,
        shutdown: &CancellationToken,
    ) -> Result<Self, ServicesSyncError> {
        let mut node = config.node;
        let addresses = Addresses::open().map_err(ServicesSyncError::Addresses)?;
        node.addresses.local = addresses::all().map_err(ServicesSyncError::Addresses)?;
        let began = Instant::now();
        let (source, first) = Source::open(config.origin).await?;
        let mut facts = ClusterFacts::new(&node);
        if !config.apps {
            facts = facts.without_apps();
        }
        datapath.services.set_cluster(&facts)?;
        let proxy = Arc::new(ProxyHealth::new());
        let (_, server) = health::serve(config.health, Arc::clone(&proxy), shutdown.clone())
            .map_err(|source| ServicesSyncError::Health {
                address: config.health,
                source,
            })?;
        let mut servers = JoinSet::new();
        servers.spawn(server);
        let mut sync = Self {
            source,
            services: Arc::new(Mutex::new(Services::new(node, config.strictness))),
            datapath,
            facts,
            addresses,
            given: config.given,
            described: None,
            health: Health::new(Listen::Everywhere, Arc::clone(&proxy), shutdown.clone()),
            proxy,
            servers,
            in_force: config.in_force,
            host_ports,
            grace: None,
            waiting: Vec::new(),
            start: Some(Start {
                began,
                objects: 0,
                whole: true,
            }),
        };
        // Before the first look at the source, so that a previous agent's ports of pods stay.
        let local = sync.services.lock().node().addresses.local.clone();
        sync.note(sync.host_ports.follow(&local));
        let mut next = first;
        while let Some(batch) = next {
            sync.take(batch).await;
            next = match sync.start {
                Some(_) => Some(sync.source.next().await),
                None => None,
            };
        }
        Ok(sync)
    }

    /// The Services, for the routes that list them.
    pub fn services(&self) -> SharedServices {
        Arc::clone(&self.services)
    }

    /// Applies changes until `shutdown`. The programmed Services stay.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                batch = self.source.next() => self.take(batch).await,
                () = self.addresses.changed() => self.moved().await,
                updates = self.host_ports.changed() => self.ports_changed(updates).await,
                errors = self.health.retry() => report(errors),
            }
        }
        while self.servers.join_next().await.is_some() {}
    }

    /// Applies a batch of changed objects, and programs the changes unless more of them follow.
    async fn take(&mut self, batch: Batch) {
        if !batch.more {
            self.proxy.queued(Instant::now());
        }
        if let Some(start) = &mut self.start {
            start.objects += batch.changes.len();
            start.whole &= batch.whole;
        }
        // Not on the threads that parse: long-lived objects between freed ones would keep the memory from being returned.
        let services = &self.services;
        let (changes, own) = tokio::task::block_in_place(move || apply(services, &batch));
        if let Some(own) = &own {
            self.proxy.set_eligible(own.is_eligible);
        }
        if let Some(changes) = changes {
            let shed = self.serve(changes).await;
            self.end_waits(&shed);
            self.proxy.updated();
            if let Some(start) = self.start.take() {
                self.settle(&start);
            }
        }
        if let Some(own) = own {
            self.described = Some(own.described);
            self.moved().await;
        }
    }

    /// Removes what a previous agent left and no object needs: all objects are known.
    fn settle(&self, start: &Start) {
        if start.whole {
            self.datapath.services.settle(&self.services.lock());
        } else {
            warn!(
                "some manifests could not be read: Services of the previous agent stay programmed until a start without such errors"
            );
        }
        let (objects, took_s) = (start.objects, start.began.elapsed().as_secs_f64());
        info!(objects, took_s, "services are programmed");
        self.in_force.send_replace(true);
    }

    /// Programs changed ports of pods, or leaves that to the first look at the source: until then not all objects are known.
    async fn ports_changed(&mut self, updates: Vec<Update>) {
        self.note(updates);
        if self.start.is_none() {
            let changes = self.services.lock().sync();
            let shed = self.serve(changes).await;
            self.end_waits(&shed);
        }
    }

    /// Applies changed ports of pods.
    fn note(&mut self, updates: Vec<Update>) {
        let mut services = self.services.lock();
        for Update { changes, waiting } in updates {
            for change in changes {
                for problem in services.apply(&change.event()) {
                    warn!(%problem, "port of a pod");
                }
            }
            self.waiting.push(waiting);
        }
    }
}

fn report(errors: Vec<health::HealthError>) {
    for error in errors {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        warn!(%error, cause, "failed to serve a health check node port; retrying");
    }
}

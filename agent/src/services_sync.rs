//! Service synchronization: objects from a source become changes of service ports, which become writes to the kernel's maps.

mod source;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use dormouse_agent_datapath::{ClusterFacts, DatapathError, ServiceFlows, SharedDatapath};
use dormouse_agent_inspect::services::SharedServices;
use dormouse_agent_services as services;
use dormouse_agent_services::{Changes, Family, Node, NodeAddresses, PortId, Services, Strictness};
use dormouse_agent_sys::memory;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::addresses::{self, Addresses};
use crate::health::{self, Health, Listen, ProxyHealth};
use crate::host_ports::{self, HostPortError, HostPorts, Update, Waiting};
use crate::own_node::{Described, Given};
use crate::source::manifests::ManifestsError;
use crate::source::object::{Change, Object};
use source::{Batch, Source};

pub use source::Origin;

/// After a change of more service ports than this, freed memory is returned to the kernel.
const LARGE: usize = 1_000;

/// The service ports of a change that could not be programmed completely; or why nothing of it is.
type Shed = Result<Vec<(PortId, DatapathError)>, String>;

/// Settings of the Service synchronization.
#[derive(Debug)]
pub struct Config {
    /// Where the objects come from.
    pub origin: Origin,
    /// The node and its cluster; `addresses` is kept up to date from the interfaces.
    pub node: Node,
    /// The addresses that flags give, if the others are those of the Node object.
    pub given: Option<Given>,
    /// Which sources load balancers' addresses admit whose source ranges have no valid range.
    pub strictness: Strictness,
    /// Control also gives this node apps, whose VIPs have slots of their own.
    pub apps: bool,
    /// Address and port of the health server.
    pub health: SocketAddr,
    /// Set when all objects are known and programmed for the first time.
    pub in_force: watch::Sender<bool>,
}

/// Why Services cannot be synchronized.
#[derive(Debug, thiserror::Error)]
pub enum ServicesSyncError {
    /// The folder of manifests cannot be read or watched.
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    /// The data path refused the cluster's address ranges.
    #[error("failed to configure the data path with the cluster's ranges")]
    Datapath(#[from] DatapathError),
    /// The node's addresses cannot be read or watched.
    #[error("failed to watch the node's addresses")]
    Addresses(#[source] std::io::Error),
    /// The health server cannot listen.
    #[error("failed to listen on {address} for health; give another --health")]
    Health {
        /// The requested address and port.
        address: SocketAddr,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
}

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

    /// The primary addresses by flags and the Node object, in place of those `before`. One that the object has no more stays, and
    /// one that this machine does not have is waited for.
    fn primary(&self, before: &[IpAddr], local: &[IpAddr]) -> Vec<IpAddr> {
        let described = self.described.as_ref();
        let given = self.given.as_ref();
        let now = given.map_or_else(Vec::new, |given| given.primary(described, local));
        let of = |all: &[IpAddr], family| {
            let mut all = all.iter().copied();
            all.find(|address| Family::of(*address) == family)
        };
        let families = [Family::V6, Family::V4].into_iter();
        families
            .filter_map(|family| of(&now, family).or_else(|| of(before, family)))
            .collect()
    }

    /// Applies a change of the node's addresses, on which node ports are served, or of what the Node object says about them.
    async fn moved(&mut self) {
        let local = match addresses::all() {
            Ok(local) => local,
            Err(error) => {
                return warn!(%error, "failed to read the node's addresses; node ports keep the previous ones");
            }
        };
        let changes = {
            let mut services = self.services.lock();
            let primary = self.primary(&services.node().addresses.primary, &local);
            let addresses = NodeAddresses { primary, local };
            if services.node().addresses == addresses {
                return;
            }
            self.host_ports.set_addresses(&addresses.local);
            let vips = services.set_node_addresses(addresses);
            self.facts = self.facts.clone().with_node(services.node());
            Changes {
                vips,
                ..Changes::default()
            }
        };
        info!("the node's addresses changed");
        if let Err(error) = self.datapath.services.set_cluster(&self.facts) {
            return error!(%error, "failed to program the node's new addresses");
        }
        // Pods wait for the ports that a look at all objects programs, which this is not: each failure is in the log.
        let _shed = self.serve(changes).await;
    }

    /// Writes the changes to the kernel's maps, then updates the health check node ports.
    async fn serve(&mut self, changes: Changes) -> Shed {
        for problem in &changes.problems {
            warn!(%problem, "service");
        }
        let is_large = changes.ports.len() > LARGE;
        // Health ports are the last part of a change.
        let waits = scans(&changes) || !changes.health.is_empty();
        let (services, datapath) = (Arc::clone(&self.services), Arc::clone(&self.datapath));
        let served = tokio::task::spawn_blocking(move || {
            let served = datapath
                .expect_pods_of_others(&changes)
                .and_then(|()| datapath.services.serve(&services.lock(), &changes));
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
    fn end_waits(&mut self, shed: &Shed) {
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

/// What a changed Node object says about this node.
struct Own {
    is_eligible: bool,
    described: Described,
}

/// Applies a batch. Returns the changes of the look, if the batch completes it, and what the Node object says, if it changed.
fn apply(services: &SharedServices, batch: &Batch) -> (Option<Changes>, Option<Own>) {
    let mut services = services.lock();
    let mut own = None;
    for change in &batch.changes {
        if let Change::Applied(Object::Node(node)) = change
            && node.metadata.name.as_deref() == Some(services.node().name.as_str())
        {
            own = Some(Own {
                is_eligible: health::is_eligible(node),
                described: Described::of(node),
            });
        }
        for problem in services.apply(&change.event()) {
            warn!(%problem, "service");
        }
    }
    if batch.more {
        return (None, own);
    }
    let changes = services.sync();
    debug!(
        ports = changes.ports.len(),
        vips = changes.vips.len(),
        "services changed"
    );
    (Some(changes), own)
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

fn report(errors: Vec<health::HealthError>) {
    for error in errors {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        warn!(%error, cause, "failed to serve a health check node port; retrying");
    }
}

/// Parses `--node-port-addresses`: `primary` (Kubernetes' default), or ranges.
pub fn node_port_addresses(texts: &[String]) -> Result<services::NodePortAddresses, String> {
    if texts.is_empty() || texts == ["primary"] {
        return Ok(services::NodePortAddresses::Primary);
    }
    prefixes(texts).map(services::NodePortAddresses::Within)
}

/// Parses address ranges; the error is the text that is not a range.
pub fn prefixes(texts: &[String]) -> Result<Vec<services::Prefix>, String> {
    texts
        .iter()
        .map(|text| services::Prefix::parse(text).ok_or_else(|| text.clone()))
        .collect()
}

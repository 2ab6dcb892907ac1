//! The scheduler's server: the cluster that it follows, its gRPC service, and its election.

mod deciding;

use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::Client;
use dormouse_cluster::reflector::{self, Batch, Kinds};
use dormouse_fleet::{Callers, Incoming};
use dormouse_scheduler_decide::{Extender, Profile};
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::clock::boottime_ns;
use crate::extenders::{ExtenderError, Extenders};
use crate::leader::Candidate;
use crate::metrics::{Metrics, members};
use crate::owner::{LEADERSHIP, Owner};
use crate::proto::scheduler_server::{Scheduler, SchedulerServer};
use crate::service::{Call, Service};
use crate::shards::{Leases, Sharding};
use crate::source::{self, Seen, Source};
use crate::webhook::Webhook;
use crate::writer::{Kubernetes, Store, Target, Writer};

/// Queued calls; further ones wait in their connections.
const CALLS_MAX: usize = 1_024;

/// Time without a renewal after which another scheduler may take the Lease; kube-scheduler's `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Explanations that are made at one time; further ones wait in their connections.
const EXPLANATIONS_MAX: usize = 1;

/// An error that ends the scheduler.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The watch of the store ended, or the task that owns the state panicked.
    #[error("the scheduler lost its watch of the store: restart it, it lists the store at start")]
    WatchEnded,
    /// Another scheduler may lead now.
    #[error("the scheduler could not renew its Lease: it ends, so that only one decides")]
    LeaseLost,
    /// Shards decide by one profile.
    #[error(
        "a scheduler with shards has one profile: start one for each profile, each with another --leader-elect-resource-name"
    )]
    Profiles,
    /// The listener has no address.
    #[error("cannot read the address of the listener")]
    Listener(#[source] std::io::Error),
    /// The gRPC server failed.
    #[error("cannot serve gRPC")]
    Grpc(#[source] tonic::transport::Error),
}

/// Serves until `shutdown`, with the default profile: gRPC on `listener`, and bindings for the pods in the store without a
/// node.
pub async fn serve(
    listener: impl Into<Incoming>,
    client: Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    Server::new(client).follow(listener, shutdown).await
}

/// The cluster whose pods are scheduled.
#[derive(Clone)]
enum Cluster {
    Store(Client),
    Kubernetes(kube::Client, Option<Election>),
}

/// The Lease by which one of several schedulers leads.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A scheduler that does not run yet.
pub struct Server {
    cluster: Cluster,
    profiles: Vec<Profile>,
    sharding: Option<Sharding>,
    extenders: (Vec<Extender>, Extenders),
    webhook: Option<Webhook>,
    metrics: Metrics,
    member_metrics: members::Metrics,
    explanations: Arc<Semaphore>,
    calls: mpsc::Sender<Call>,
    received: mpsc::Receiver<Call>,
}

impl Server {
    /// A scheduler of the pods in a store, with the default profile.
    pub fn new(client: Client) -> Self {
        Self::of(Cluster::Store(client))
    }

    /// A scheduler of the pods of a Kubernetes API server, with the default profile; without an election it decides at once.
    pub fn of_kubernetes(client: kube::Client, election: Option<Election>) -> Self {
        Self::of(Cluster::Kubernetes(client, election))
    }

    fn of(cluster: Cluster) -> Self {
        let (calls, received) = mpsc::channel(CALLS_MAX);
        Self {
            cluster,
            profiles: vec![Profile::default()],
            sharding: None,
            extenders: (Vec::new(), Extenders::default()),
            webhook: None,
            metrics: Metrics::default(),
            member_metrics: members::Metrics::default(),
            explanations: Arc::new(Semaphore::new(EXPLANATIONS_MAX)),
            calls,
            received,
        }
    }

    /// The scheduler with other profiles, of which each has another name.
    #[must_use]
    pub fn with_profiles(mut self, profiles: Vec<Profile>) -> Self {
        self.profiles = profiles;
        self
    }

    /// The scheduler as the leader of shards. It has one profile, and its election is that of the shards.
    #[must_use]
    pub fn with_shards(mut self, sharding: Sharding) -> Self {
        self.sharding = Some(sharding);
        self
    }

    /// The scheduler with extenders, which are asked about pods that are in the cluster: not by calls of `Place`.
    pub fn with_extenders(mut self, extenders: Vec<Extender>) -> Result<Self, ExtenderError> {
        let connected = Extenders::new(&extenders)?;
        self.extenders = (extenders, connected);
        Ok(self)
    }

    /// The scheduler with a webhook to which a Kubernetes API server sends pods that are being created.
    #[must_use]
    pub fn with_webhook(mut self, webhook: Webhook) -> Self {
        self.webhook = Some(webhook);
        self
    }

    /// Adds the scheduler's metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        if self.sharding.is_some() {
            self.member_metrics.register(registry);
            self.member_metrics.register_leader(registry);
        }
    }

    /// Its service for clients in this process. Calls wait until the scheduler runs and knows all nodes and pods.
    pub fn in_process(&self) -> SchedulerServer<impl Scheduler + use<>> {
        SchedulerServer::new(Service {
            calls: self.calls.clone(),
            explanations: Arc::clone(&self.explanations),
        })
    }

    /// Runs until `shutdown`, with watches of its own.
    pub async fn follow(
        self,
        listener: impl Into<Incoming>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let listener = listener.into();
        match self.cluster.clone() {
            Cluster::Store(client) => {
                let changes = reflector::start(client, Kinds::PodsAndNodes, shutdown.clone());
                self.run(listener, changes, shutdown).await
            }
            Cluster::Kubernetes(client, election) => {
                self.serve_kubernetes(client, election, listener, shutdown)
                    .await
            }
        }
    }

    /// Runs until `shutdown`, with a reflector's changes of pods and nodes of the store.
    pub async fn run(
        self,
        listener: impl Into<Incoming>,
        changes: mpsc::Receiver<Batch>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let listener = listener.into();
        match self.cluster.clone() {
            Cluster::Store(client) => {
                let source = source::store::start(&client, changes, &shutdown);
                let target = Target::Store(Store(client));
                self.serve(listener, source, target, shutdown).await
            }
            Cluster::Kubernetes(client, election) => {
                self.serve_kubernetes(client, election, listener, shutdown)
                    .await
            }
        }
    }

    async fn serve_kubernetes(
        mut self,
        client: kube::Client,
        election: Option<Election>,
        listener: Incoming,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let identity = format!("{}_{:016x}", host(), seed());
        let (mut source, sender) = source::kubernetes::start(&client, &shutdown);
        if let Some(webhook) = self.webhook.take() {
            webhook.start(sender.clone(), self.metrics.clone(), &shutdown);
        }
        let lost = CancellationToken::new();
        let election = election.filter(|_| self.sharding.is_none());
        if let Some(Election { namespace, name }) = election {
            source.kinds.insert(LEADERSHIP);
            let leases = Leases::in_kubernetes(client.clone(), &namespace);
            let candidate = Candidate::new(leases, &name, &identity, LEASE_DURATION);
            let lead = lead(candidate, sender, lost.clone());
            tokio::spawn(shutdown.clone().run_until_cancelled_owned(lead));
        }
        let target = Target::Kubernetes(Arc::new(Kubernetes::new(client, identity)));
        tokio::select! {
            served = self.serve(listener, source, target, shutdown) => served,
            () = lost.cancelled() => Err(ServeError::LeaseLost),
        }
    }

    async fn serve(
        self,
        listener: Incoming,
        source: Source,
        target: Target,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let service = self.in_process();
        let lost = CancellationToken::new();
        let url = listener.url().map_err(ServeError::Listener)?;
        let (state, endpoint) = self.state(url, lost.clone(), &shutdown)?;
        let mut kinds = source.kinds;
        if endpoint.is_some() {
            kinds.insert(LEADERSHIP);
        }
        let received = self.received;
        let (extenders, connected) = self.extenders;
        let writer = Writer::new(target, &self.metrics);
        let state = (state.0.with_extenders(extenders), state.1);
        let owner = Owner::new(writer, connected, state, self.metrics, kinds);
        let owner = shutdown
            .clone()
            .run_until_cancelled_owned(owner.run(source.seen, received));
        let owner = tokio::spawn(owner);
        let served = Callers::Roles
            .server()
            .add_service(service)
            .add_optional_service(endpoint.map(|endpoint| endpoint.service()))
            .serve_with_incoming_shutdown(
                listener.connections(),
                shutdown.clone().cancelled_owned(),
            );
        tokio::select! {
            served = served => served.map_err(ServeError::Grpc),
            () = lost.cancelled() => Err(ServeError::LeaseLost),
            _ = owner => if shutdown.is_cancelled() { Ok(()) } else { Err(ServeError::WatchEnded) },
        }
    }
}

/// Takes part in the election, and cancels `lost` when this one has led and leads no more.
async fn lead(mut candidate: Candidate, sender: mpsc::Sender<Vec<Seen>>, lost: CancellationToken) {
    let renewed = candidate.acquire().await;
    let tell = sender.send(vec![Seen::Listed(LEADERSHIP)]);
    let (told, ()) = tokio::join!(tell, candidate.hold(renewed));
    drop(told);
    lost.cancel();
}

/// The name of this machine.
pub fn host() -> String {
    let name = nix::unistd::gethostname().ok();
    name.map_or_else(
        || "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// A seed that differs between processes; not a secret.
fn seed() -> u64 {
    boottime_ns() ^ u64::from(std::process::id()) << 32
}

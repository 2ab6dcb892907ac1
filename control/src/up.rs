//! `dormouse up`: the roles of the control plane in one process. The store starts first, the activator last: a request
//! may be parked only when the apps controller can wake its app.

mod options;

pub use options::{Options, Role};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_activator::link;
use dormouse_cluster::{Client, VipRange, reflector};
use dormouse_fleet::ServerConfig;
use dormouse_scheduler::SchedulerClient;
use dormouse_store::{Limits, Store, durable::DataDir};
use dormouse_store_command::Command;
use dormouse_store_command::compaction::{self, Policy};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tracing::info;

use crate::{api, metrics};

/// The store's port, as etcd's.
pub const STORE_PORT: u16 = 2379;
/// The REST API's port, as kube-apiserver's.
pub const API_PORT: u16 = 6443;
/// The fleet's port, to which agents connect.
pub const FLEET_PORT: u16 = 7443;
/// The scheduler's port, as kube-scheduler's.
pub const SCHEDULER_PORT: u16 = 10259;
/// The port of the metrics.
pub const METRICS_PORT: u16 = 9090;

/// The ports of the control plane. No app may have one of them: the activator could not listen on it.
pub const OWN_PORTS: [u16; 5] = [
    STORE_PORT,
    API_PORT,
    FLEET_PORT,
    METRICS_PORT,
    SCHEDULER_PORT,
];

/// History that the store keeps; the default of kube-apiserver's `--etcd-compaction-interval`.
const HISTORY: Duration = Duration::from_mins(5);

/// Timeout of the first connection to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of connection attempts to the store.
const CONNECT_RETRY: Duration = Duration::from_millis(100);

/// The roles that run in this process.
struct Roles {
    options: Options,
    running: JoinSet<Result<()>>,
    /// Ends the activator first: while it drains parked requests, the other roles still wake their apps.
    drain: CancellationToken,
    /// Ends the other roles.
    shutdown: CancellationToken,
    registry: Registry,
}

/// Runs every role that is not excluded by `--without`, until `drain` is cancelled and all requests are drained.
pub async fn run(options: Options, drain: CancellationToken) -> Result<()> {
    let ranges = options.ranges()?;
    let mut roles = Roles {
        options,
        running: JoinSet::new(),
        drain,
        shutdown: CancellationToken::new(),
        registry: Registry::default(),
    };
    let store = roles.store().await?;
    let client = connect(&store).await?;
    let scheduler = roles.scheduler(&client).await?;
    roles.apps(&ranges, &client, &scheduler).await?;
    roles.metrics().await?;
    info!(address = %roles.options.address, "control plane is up");
    roles.finish().await
}

/// Runs only the store, or a command on its data directory.
pub async fn run_store(command: Command, shutdown: CancellationToken) -> Result<()> {
    if let Some(action) = command.action {
        return Ok(tokio::task::spawn_blocking(|| action.run()).await??);
    }
    dormouse_store_command::run(command.flags, shutdown)
        .await
        .context("store failed")
}

/// Runs only the scheduler.
pub async fn run_scheduler(
    listen: SocketAddr,
    store: String,
    shutdown: CancellationToken,
) -> Result<()> {
    let client = connect(&store).await?;
    let listener = bind(listen, "scheduler").await?;
    dormouse_scheduler::serve(listener, client, shutdown)
        .await
        .context("scheduler failed")
}

impl Roles {
    fn is_external(&self, role: Role) -> bool {
        self.options.without.contains(&role)
    }

    /// Starts the store unless it is external; returns its URL.
    async fn store(&mut self) -> Result<String> {
        let url = self
            .options
            .store
            .clone()
            .unwrap_or_else(|| self.options.url(STORE_PORT));
        if self.is_external(Role::Store) {
            return Ok(url);
        }
        ensure!(
            self.options.store.is_none(),
            "--store is the URL of an external store: add --without store"
        );
        let listener = bind(self.options.at(STORE_PORT), "store").await?;
        let data = self.options.data();
        let store = open(data).await?;
        store.register(&mut self.registry);
        let policy = Policy::Period(HISTORY);
        tokio::spawn(compaction::run(
            store.clone(),
            policy,
            self.shutdown.clone(),
        ));
        let served = dormouse_store::server::serve(listener, store.clone(), self.shutdown.clone());
        self.running.spawn(async move {
            served.await.context("store failed")?;
            store
                .close()
                .context("the end of the store's run was not recorded")
        });
        Ok(url)
    }

    /// Starts the scheduler unless it is external; returns its URL.
    async fn scheduler(&mut self, client: &Client) -> Result<String> {
        let url = self
            .options
            .scheduler
            .clone()
            .unwrap_or_else(|| self.options.url(SCHEDULER_PORT));
        if self.is_external(Role::Scheduler) {
            return Ok(url);
        }
        ensure!(
            self.options.scheduler.is_none(),
            "--scheduler is the URL of an external scheduler: add --without scheduler"
        );
        let listener = bind(self.options.at(SCHEDULER_PORT), "scheduler").await?;
        let served = dormouse_scheduler::serve(listener, client.clone(), self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("scheduler failed") });
        Ok(url)
    }
}

impl Roles {
    /// Starts the apps controller, the fleet, the activator and the API.
    async fn apps(&mut self, ranges: &[VipRange], client: &Client, scheduler: &str) -> Result<()> {
        let epoch = dormouse_apps::epoch::take(client)
            .await
            .context("failed to take control of the fleet")?;
        let config = ServerConfig {
            lease: self.options.node_lease,
            ..ServerConfig::new(epoch, self.options.node_config(ranges))
        };
        let (fleet, fleet_events) = dormouse_fleet::start(config, self.shutdown.clone());
        let (activator, reports) =
            dormouse_activator::new(dormouse_activator::Config::new(self.options.acting_prefix));
        let (hub, link_events) = link::start(epoch);
        activator.register(&mut self.registry);
        let kinds = reflector::Kinds::All;
        let changes = reflector::start(client.clone(), kinds, self.shutdown.clone());
        let config = dormouse_apps::Config {
            ranges: ranges.to_vec(),
            scale_to_zero_grace: self.options.scale_to_zero_grace,
            tick: dormouse_apps::TICK,
            epoch,
            node_lease: self.options.node_lease,
        };
        let parts = dormouse_apps::Parts {
            client: client.clone(),
            changes,
            scheduler: SchedulerClient::new(lazy(scheduler)?),
            fleet: fleet.clone(),
            fleet_events,
            hub: hub.clone(),
            link_events,
        };
        let (handle, controller) = dormouse_apps::start(config, parts, self.shutdown.clone());
        handle.register(&mut self.registry);
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            controller.await;
            ensure!(
                shutdown.is_cancelled(),
                "the apps controller lost its watch of the store: restart the control plane, it lists the store at start"
            );
            Ok(())
        });
        self.serve_fleet(fleet).await?;
        self.serve_api(client.clone(), ranges.to_vec(), handle)
            .await?;
        let attachment = link::Attachment::new(activator.clone(), reports, "up".to_owned());
        let attached = attachment.follow(hub, self.shutdown.clone());
        let served = dormouse_activator::run(activator, self.drain.clone());
        self.running.spawn(async move {
            attached.await;
            Ok(())
        });
        self.running.spawn(async move {
            served.await;
            Ok(())
        });
        Ok(())
    }

    async fn serve_fleet(&mut self, fleet: dormouse_fleet::Handle) -> Result<()> {
        let listener = bind(self.options.at(FLEET_PORT), "fleet").await?;
        let served = dormouse_fleet::serve(listener, fleet, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("fleet failed") });
        Ok(())
    }

    async fn serve_api(
        &mut self,
        client: Client,
        ranges: Vec<VipRange>,
        apps: dormouse_apps::Handle,
    ) -> Result<()> {
        let listener = bind(self.options.at(API_PORT), "API").await?;
        let config = api::Config {
            client,
            ranges,
            insight: Arc::new(ControllerInsight(apps)),
        };
        let served = api::serve(listener, config, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("API failed") });
        Ok(())
    }

    async fn metrics(&mut self) -> Result<()> {
        let listener = bind(self.options.at(METRICS_PORT), "metrics").await?;
        let registry = std::mem::take(&mut self.registry);
        let served = metrics::serve(listener, registry, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("metrics failed") });
        Ok(())
    }

    /// Waits for all roles; when one ends, the others are shut down.
    async fn finish(mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(ended) = self.running.join_next().await {
            let ended = ended.context("a role panicked").and_then(|ended| ended);
            self.drain.cancel();
            self.shutdown.cancel();
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// The apps controller as the API's insight.
struct ControllerInsight(dormouse_apps::Handle);

impl api::Insight for ControllerInsight {
    fn explain(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        self.0.explain(namespace, name)
    }

    fn wakes(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        self.0.wakes(namespace, name)
    }
}

async fn bind(address: SocketAddr, role: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "failed to listen on {address} for the {role}: stop another control plane on it, or set --address to an address of this host"
        )
    })
}

/// The store of a data directory.
async fn open(data: DataDir) -> Result<Store> {
    let path = data.path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Store::open(Limits::default(), &data));
    opened
        .await?
        .with_context(|| format!("failed to open the data directory `{path}`"))
}

/// A client of the store; waits until the store responds.
async fn connect(store: &str) -> Result<Client> {
    let client = Client::connect(store)
        .await
        .with_context(|| format!("`{store}` is not the URL of a store"))?;
    let response = async {
        while let Err(error) = client.range("/registry/dormouse.dev/", 0).await {
            tracing::debug!(%error, store, "the store does not respond yet");
            tokio::time::sleep(CONNECT_RETRY).await;
        }
    };
    tokio::time::timeout(CONNECT_TIMEOUT, response)
        .await
        .with_context(|| format!("the store at {store} does not respond: is it running?"))?;
    Ok(client)
}

/// A channel that connects on first use and reconnects.
fn lazy(url: &str) -> Result<Channel> {
    let endpoint =
        Endpoint::from_shared(url.to_owned()).with_context(|| format!("`{url}` is not a URL"))?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(1))
        .connect_lazy())
}

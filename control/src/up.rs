//! `dormouse up`: the roles of the control plane in one process. All listeners are bound first, then the store starts, and
//! the epoch of the fleet is taken last: only a control plane that can run takes over from another.

mod checks;
mod connect;
mod listeners;
mod options;
mod ports;

pub use options::{Options, Role};
pub use ports::{
    ACTIVATOR_PORT, API_PORT, FLEET_PORT, METRICS_PORT, OWN_PORTS, SCHEDULER_PORT, STORE_PORT,
};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_activator::link;
use dormouse_apps::epoch;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::claim::Claims;
use dormouse_cluster::reflector::{self, Batch};
use dormouse_cluster::{App, Channel, Client, Services, channel};
use dormouse_fleet::{Incoming, ServerConfig};
use dormouse_scheduler::SchedulerClient;
use dormouse_store::server::raise_descriptor_limit;
use dormouse_store::{Limits, Store, durable::DataDir};
use dormouse_store_command::Command;
use dormouse_store_command::compaction::{self, Policy};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::descriptors::{self, ACTIVATOR_PARTS, CONTROL_PARTS, STORE_PARTS};
use crate::readiness::Checks;
use crate::{api, listen, metrics};
use connect::{connect, lazy};
use listeners::Listeners;

/// History that the store keeps; the default of kube-apiserver's `--etcd-compaction-interval`.
const HISTORY: Duration = Duration::from_mins(5);

/// A scheduler that does not run yet, and its listener.
type Standby = (dormouse_scheduler::Server, TcpListener);

/// The roles that run in this process.
struct Roles {
    options: Options,
    running: JoinSet<Result<()>>,
    /// Ends the activator first: while it drains parked requests, the other roles still wake their apps.
    drain: CancellationToken,
    /// Ends the other roles.
    shutdown: CancellationToken,
    registry: Registry,
    checks: Checks,
    /// Limit of the API's clients, of the nodes, of the store's clients, of the activator's, of its connections to pods, and of the
    /// ports of apps.
    connections_max: usize,
}

/// Runs every role that is not excluded by `--without`, until `drain` is cancelled and all requests are drained.
pub async fn run(options: Options, drain: CancellationToken) -> Result<()> {
    let ranges = options.ranges()?;
    let service_ranges = options.service_ranges(&ranges)?;
    if !options.without.contains(&Role::Activator) {
        options.activator.check_local()?;
    }
    let connections_max = descriptors::part(raise_descriptor_limit(), parts(&options.without));
    let mut roles = Roles {
        options,
        running: JoinSet::new(),
        drain,
        shutdown: CancellationToken::new(),
        registry: Registry::default(),
        checks: Checks::default(),
        connections_max,
    };
    let listeners = Listeners::bind(&roles.options).await?;
    let client = roles.store(listeners.store).await?;
    let scheduler = roles.scheduler(&client, listeners.scheduler)?;
    let claims = Claims::new(client.clone(), ranges);
    let controller = roles.controller(&claims, &client, scheduler).await?;
    let activator = roles.serve_activators(controller.hub.clone(), listeners.activators);
    let (hub, checked) = (controller.hub, activator.clone());
    roles.checks.add("activator", move || {
        std::future::ready(checks::activator(&hub, checked.as_ref()))
    });
    let fleet = controller.fleet.clone();
    roles.serve_fleet(fleet, listeners.fleet, activator.clone());
    // An earlier control plane that still runs cannot give an address that this one gives, too, nor write slices beside it.
    let fenced = client.fenced(epoch::is_current(controller.epoch));
    roles.write_slices(fenced.clone());
    let config = api::Config {
        services: Services::new(fenced, service_ranges),
        client,
        claims,
        insight: Arc::new(ControllerInsight(controller.apps)),
        fleet: controller.fleet,
        checks: std::mem::take(&mut roles.checks),
    };
    roles.serve_api(config, listeners.api);
    roles.serve_metrics(listeners.metrics, activator);
    info!(address = %roles.options.address, "control plane is up");
    roles.finish().await
}

/// The parts into which the roles of this process divide its file descriptors.
fn parts(without: &[Role]) -> u64 {
    let here = [
        (Role::Activator, ACTIVATOR_PARTS),
        (Role::Store, STORE_PARTS),
    ]
    .into_iter()
    .filter(|(role, _)| !without.contains(role))
    .map(|(_, parts)| parts);
    CONTROL_PARTS + here.sum::<u64>()
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
    let listener = listen::listen(listen, "scheduler").await?;
    dormouse_scheduler::serve(listener, client, shutdown)
        .await
        .context("scheduler failed")
}

impl Roles {
    /// Starts the store unless it is external; returns its client, which calls a store in this process directly.
    async fn store(&mut self, listener: Option<TcpListener>) -> Result<Client> {
        let Some(listener) = listener else {
            let url = self.options.store.clone();
            let client = connect(&url.unwrap_or_else(|| self.options.url(STORE_PORT))).await?;
            self.check_store(&client);
            return Ok(client);
        };
        ensure!(
            self.options.store.is_none(),
            "--store is the URL of an external store: add --without store"
        );
        let data = self.options.data();
        let store = open(data).await?;
        store.register(&mut self.registry);
        let policy = Policy::Period(HISTORY);
        tokio::spawn(compaction::run(
            store.clone(),
            policy,
            self.shutdown.clone(),
        ));
        let options = dormouse_store::server::Options {
            connections_max: self.connections_max,
            ..dormouse_store::server::Options::default()
        };
        let server = dormouse_store::server::Server::new(
            vec![listener],
            store.clone(),
            options,
            self.shutdown.clone(),
        );
        let server = server.context("store failed")?;
        let client = Client::over(channel::in_process(server.in_process()));
        let client = client.await.context("failed to call the store")?;
        self.check_store(&client);
        self.running.spawn(async move {
            server.run().await.context("store failed")?;
            store
                .close()
                .context("the end of the store's run was not recorded")
        });
        Ok(client)
    }

    fn check_store(&mut self, client: &Client) {
        let checked = client.clone();
        self.checks
            .add("store", move || checks::store(checked.clone()));
    }

    /// A channel to the scheduler, and the scheduler unless it is external: its calls wait until it runs.
    fn scheduler(
        &mut self,
        client: &Client,
        listener: Option<TcpListener>,
    ) -> Result<(Channel, Option<Standby>)> {
        let (channel, standby) = self.scheduler_channel(client, listener)?;
        let checked = channel.clone();
        self.checks
            .add("scheduler", move || checks::scheduler(checked.clone()));
        Ok((channel, standby))
    }

    fn scheduler_channel(
        &self,
        client: &Client,
        listener: Option<TcpListener>,
    ) -> Result<(Channel, Option<Standby>)> {
        let Some(listener) = listener else {
            let url = self.options.scheduler.clone();
            let external = lazy(&url.unwrap_or_else(|| self.options.url(SCHEDULER_PORT)))?;
            return Ok((external, None));
        };
        ensure!(
            self.options.scheduler.is_none(),
            "--scheduler is the URL of an external scheduler: add --without scheduler"
        );
        let scheduler = dormouse_scheduler::Server::new(client.clone());
        let service = channel::in_process(scheduler.in_process());
        Ok((service, Some((scheduler, listener))))
    }

    /// Starts to follow the store for the controller, and for the scheduler in this process.
    fn follow(&mut self, client: &Client, standby: Option<Standby>) -> mpsc::Receiver<Batch> {
        let (client, shutdown) = (client.clone(), self.shutdown.clone());
        let Some((scheduler, listener)) = standby else {
            return reflector::start(client, reflector::Kinds::All, shutdown);
        };
        let (changes, pods_and_nodes) = reflector::start_shared(client, shutdown.clone());
        let served = scheduler.run(listener, pods_and_nodes, shutdown);
        self.running
            .spawn(async move { served.await.context("scheduler failed") });
        changes
    }
}

/// The controller's handles.
struct Controller {
    /// The epoch of this control plane.
    epoch: u64,
    fleet: dormouse_fleet::Handle,
    hub: link::Hub,
    apps: dormouse_apps::Handle,
}

impl Roles {
    /// Takes the fleet's epoch, and starts the scheduler, the fleet, the link to the activators and the apps controller.
    async fn controller(
        &mut self,
        claims: &Claims,
        client: &Client,
        (scheduler, standby): (Channel, Option<Standby>),
    ) -> Result<Controller> {
        let epoch = epoch::take(client)
            .await
            .context("failed to take control of the fleet")?;
        let node_config = self.options.node_config(claims.ranges(), epoch.cluster);
        let epoch = epoch.number;
        let config = ServerConfig {
            lease: self.options.node_lease,
            ..ServerConfig::new(epoch, node_config)
        };
        let (fleet, fleet_events) = dormouse_fleet::start(config, self.shutdown.clone());
        self.hold_epoch(client.clone(), epoch, fleet.clone());
        let (hub, link_events) = link::start(epoch);
        let changes = self.follow(client, standby);
        let config = dormouse_apps::Config {
            ranges: claims.ranges().to_vec(),
            scale_to_zero_grace: self.options.scale_to_zero_grace,
            tick: dormouse_apps::TICK,
            epoch,
            node_lease: self.options.node_lease,
            limits: self.options.limits(),
        };
        let parts = dormouse_apps::Parts {
            client: client.clone(),
            claims: claims.clone(),
            changes,
            scheduler: SchedulerClient::new(scheduler),
            fleet: fleet.clone(),
            fleet_events,
            hub: hub.clone(),
            link_events,
        };
        let (apps, controller) = dormouse_apps::start(config, parts, self.shutdown.clone());
        apps.register(&mut self.registry);
        let checked = apps.clone();
        self.checks
            .add("apps", move || checks::apps(checked.clone()));
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            controller.await;
            ensure!(
                shutdown.is_cancelled(),
                "the apps controller lost its watch of the store: restart the control plane, it lists the store at start"
            );
            Ok(())
        });
        Ok(Controller {
            epoch,
            fleet,
            hub,
            apps,
        })
    }

    /// Confirms the epoch for the fleet. Ends this control plane when another one has taken it: its own writes are refused from then
    /// on.
    fn hold_epoch(&mut self, client: Client, epoch: u64, fleet: dormouse_fleet::Handle) {
        let (shutdown, lease) = (self.shutdown.clone(), self.options.node_lease);
        self.running.spawn(async move {
            let held = epoch::hold(&client, epoch, lease, &fleet);
            match shutdown.run_until_cancelled(held).await {
                None => Ok(()),
                Some(newer) => bail!(
                    "another control plane has taken over the fleet with epoch {newer}, this one had {epoch}: it ends, so that only one scales the apps"
                ),
            }
        });
    }

    /// Serves the nodes as soon as the activator in this process is ready: an entry sends connections to it.
    fn serve_fleet(
        &mut self,
        fleet: dormouse_fleet::Handle,
        listener: TcpListener,
        activator: Option<dormouse_activator::Handle>,
    ) {
        let incoming = Incoming::new(listener, self.connections_max);
        if let Ok(address) = incoming.local_addr() {
            let checked = fleet.clone();
            self.checks
                .add("fleet", move || checks::fleet(checked.clone(), address));
        }
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            if let Some(activator) = activator {
                shutdown.run_until_cancelled(activator.ready()).await;
            }
            let served = dormouse_fleet::serve(incoming, fleet, shutdown);
            served.await.context("fleet failed")
        });
    }

    /// Serves activators in other processes, and starts the one in this process unless it is external; returns that one.
    fn serve_activators(
        &mut self,
        hub: link::Hub,
        listener: TcpListener,
    ) -> Option<dormouse_activator::Handle> {
        let served = link::serve(listener, hub.clone(), self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("link to the activators failed") });
        let drain = self.drain.clone();
        if self.options.without.contains(&Role::Activator) {
            // There is nothing to drain.
            self.running.spawn(async move {
                drain.cancelled().await;
                Ok(())
            });
            return None;
        }
        let mut config = self.options.activator.config();
        descriptors::limit_activator(&mut config, self.connections_max);
        let (activator, reports) = dormouse_activator::new(config);
        activator.register(&mut self.registry);
        let attachment = link::Attachment::new(activator.clone(), reports, "up".to_owned());
        let attached = attachment.follow(hub, self.shutdown.clone());
        self.running.spawn(async move {
            attached.await;
            Ok(())
        });
        let running = activator.clone();
        self.running.spawn(async move {
            dormouse_activator::run(running, drain).await;
            Ok(())
        });
        Some(activator)
    }

    /// Writes the EndpointSlices of Services. Ends this control plane when another one has taken over and writes them.
    fn write_slices(&mut self, client: Client) {
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            dormouse_slices::run(client, shutdown.clone()).await;
            ensure!(
                shutdown.is_cancelled(),
                "another control plane has taken over the fleet: this one ends, so that only one writes EndpointSlices"
            );
            Ok(())
        });
    }

    fn serve_api(&mut self, config: api::Config, listener: TcpListener) {
        let incoming = Incoming::new(listener, self.connections_max);
        let served = api::serve(incoming, config, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("API failed") });
    }

    fn serve_metrics(
        &mut self,
        listener: TcpListener,
        activator: Option<dormouse_activator::Handle>,
    ) {
        let registry = std::mem::take(&mut self.registry);
        let served = metrics::serve(listener, registry, activator, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("metrics failed") });
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

    fn autoscaling(&self) -> Arc<Cluster> {
        self.0.autoscaling()
    }

    fn settings(&self, app: &App) -> Vec<String> {
        self.0.settings(app)
    }

    fn wakes(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        self.0.wakes(namespace, name)
    }
}

/// The store of a data directory.
async fn open(data: DataDir) -> Result<Store> {
    let path = data.path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Store::open(Limits::default(), &data));
    opened
        .await?
        .with_context(|| format!("failed to open the data directory `{path}`"))
}

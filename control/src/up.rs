//! `dormouse up`: the roles of the control plane in one process. All listeners are bound first, then the store starts, and
//! the epoch of the fleet is taken last: only a control plane that can run takes over from another.

mod checks;
mod controller;
mod listeners;
mod nodes;
mod options;
mod ports;
mod store;

pub(crate) use nodes::JOINS_MAX;
pub use options::{Options, Role};
pub use ports::{
    ACTIVATOR_PORT, API_PORT, FLEET_PORT, JOIN_PORT, METRICS_PORT, OWN_PORTS, SCHEDULER_PORT,
    STORE_PORT,
};

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use dormouse_activator::link;
use dormouse_apps::epoch;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::claim::Claims;
use dormouse_cluster::{App, Client, Services};
use dormouse_fleet::Incoming;
use dormouse_store::server::raise_descriptor_limit;
use dormouse_store_command::Command;
use dormouse_trust::Clients;
use dormouse_trust::server::administers;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::audit::{self, Audit};
use crate::descriptors::{self, ACTIVATOR_PARTS, CONTROL_PARTS, STORE_PARTS};
use crate::readiness::Checks;
use crate::role::{Peers, ROLES_MAX};
use crate::trust::{Registrar, Trust};
use crate::{api, metrics};
use listeners::Listeners;

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
    /// None: plain text (`--insecure`).
    trust: Option<Arc<Trust>>,
    /// Roles in other processes.
    peers: Peers,
    /// Limit of the API's clients, of the nodes, of the store's clients, of the activator's, of its connections to pods, and of the
    /// ports of apps.
    connections_max: usize,
}

/// Runs every role that is not excluded by `--without`, until `drain` is cancelled and all requests are drained.
pub async fn run(options: Options, drain: CancellationToken) -> Result<()> {
    options.check_plain_text()?;
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
        trust: None,
        peers: Peers::new(None, "remove --insecure".to_owned()),
        connections_max,
    };
    let listeners = Listeners::bind(&roles.options).await?;
    roles.trust()?;
    let client = roles.store(listeners.store).await?;
    let scheduler = roles.scheduler(&client, listeners.scheduler)?;
    let claims = Claims::new(client.clone(), ranges);
    let explains = scheduler.0.clone();
    let controller = roles.controller(&claims, &client, scheduler).await?;
    let activator = roles.serve_activators(controller.hub.clone(), listeners.activators)?;
    let (hub, checked) = (controller.hub, activator.clone());
    roles.checks.add("activator", move || {
        std::future::ready(checks::activator(&hub, checked.as_ref()))
    });
    let fleet = controller.fleet.clone();
    // First: it reads which nodes are revoked.
    let registrar = roles.serve_joins(&client, fleet, listeners.joins).await?;
    let fleet = controller.fleet.clone();
    roles.serve_fleet(fleet, listeners.fleet, activator.clone())?;
    // An earlier control plane that still runs cannot give an address that this one gives, too, nor write slices beside it.
    let fenced = client.fenced(epoch::is_current(controller.epoch));
    roles.write_slices(fenced.clone());
    let config = api::Config {
        services: Services::new(fenced, service_ranges),
        client,
        claims,
        insight: Arc::new(ControllerInsight(controller.apps)),
        fleet: controller.fleet,
        scheduler: explains,
        checks: std::mem::take(&mut roles.checks),
        authenticator: registrar.as_ref().map(authenticator),
        audit: roles.audit()?,
        registrar,
    };
    let api = api::Server::new(config, roles.shutdown.clone());
    roles.serve_metrics(&api, listeners.metrics, activator)?;
    roles.serve_api(api, listeners.api)?;
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

impl Roles {
    /// Opens the authority, and issues the certificates of this process.
    fn trust(&mut self) -> Result<()> {
        let options = &self.options;
        self.trust = Trust::open(&options.trust, &options.data_dir, options.address)?;
        if let Some(trust) = &self.trust {
            self.peers = Peers::new(Some(trust.client()?), String::new());
        }
        Ok(())
    }

    /// A port for other roles.
    fn for_roles(&self, listener: TcpListener) -> Result<Incoming> {
        let incoming = Incoming::new(listener, ROLES_MAX);
        Ok(match &self.trust {
            Some(trust) => incoming.secured(trust.listener(Clients::Only(administers))?),
            None => incoming,
        })
    }

    /// Serves activators in other processes, and starts the one in this process unless it is external; returns that one.
    fn serve_activators(
        &mut self,
        hub: link::Hub,
        listener: TcpListener,
    ) -> Result<Option<dormouse_activator::Handle>> {
        let incoming = self.for_roles(listener)?;
        let served = link::serve(incoming, hub.clone(), self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("link to the activators failed") });
        let drain = self.drain.clone();
        if self.options.without.contains(&Role::Activator) {
            // There is nothing to drain.
            self.running.spawn(async move {
                drain.cancelled().await;
                Ok(())
            });
            return Ok(None);
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
        Ok(Some(activator))
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

    /// Opens the audit log, and writes it until the API has ended.
    fn audit(&mut self) -> Result<Option<Audit>> {
        let Some(path) = &self.options.audit_log else {
            return Ok(None);
        };
        let opened = audit::open(path);
        let (audit, log) =
            opened.with_context(|| format!("failed to open --audit-log `{}`", path.display()))?;
        audit.register(&mut self.registry);
        self.running.spawn(async move {
            let written = tokio::task::spawn_blocking(|| log.write());
            written.await.context("the audit log ended")
        });
        Ok(Some(audit))
    }

    fn serve_api(&mut self, api: api::Server, listener: TcpListener) -> Result<()> {
        let incoming = Incoming::new(listener, self.connections_max);
        let served = api.serve(self.for_all(incoming)?);
        self.running
            .spawn(async move { served.await.context("API failed") });
        Ok(())
    }

    fn serve_metrics(
        &mut self,
        api: &api::Server,
        listener: TcpListener,
        activator: Option<dormouse_activator::Handle>,
    ) -> Result<()> {
        let pages = api.guarded(metrics::page(std::mem::take(&mut self.registry)));
        let incoming = Incoming::new(listener, metrics::CONNECTIONS_MAX);
        let incoming = self.for_all(incoming)?;
        let served = metrics::serve(incoming, pages, activator, self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("metrics failed") });
        Ok(())
    }

    /// A port at which clients without a certificate are anonymous.
    fn for_all(&self, incoming: Incoming) -> Result<Incoming> {
        Ok(match &self.trust {
            Some(trust) => incoming.secured(trust.listener(Clients::Requested)?),
            None => incoming,
        })
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

/// The users' tokens as the API's authenticator.
fn authenticator(registrar: &Registrar) -> Arc<dyn api::Authenticator> {
    Arc::new(registrar.tokens().clone())
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

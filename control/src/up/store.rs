//! The store and the scheduler, in this process or outside of it, and how the controller follows the store.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_cluster::reflector::{self, Batch};
use dormouse_cluster::{Channel, Client, channel};
use dormouse_fleet::Incoming;
use dormouse_store::server::Diagnosis;
use dormouse_store::{Limits, Store, durable::DataDir};
use dormouse_store_command::compaction::{self, Policy};
use dormouse_trust::server::administers;
use dormouse_trust::{Clients, diagnosis};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{Roles, SCHEDULER_PORT, STORE_PORT, checks};

/// History that the store keeps; the default of kube-apiserver's `--etcd-compaction-interval`.
const HISTORY: Duration = Duration::from_mins(5);

/// A scheduler that does not run yet, and its listener.
pub(super) type Standby = (dormouse_scheduler::Server, Incoming);

impl Roles {
    /// Starts the store unless it is external; returns its client, which calls a store in this process directly.
    pub(super) async fn store(&mut self, listener: Option<TcpListener>) -> Result<Client> {
        let Some(listener) = listener else {
            let url = self.options.store.clone();
            let url = url.unwrap_or_else(|| self.options.url(STORE_PORT));
            let client = self.peers.store(&url).await?;
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
        let admitted = Clients::Only(administers);
        let tls = self.trust.as_ref().map(|trust| trust.listener(admitted));
        let options = dormouse_store::server::Options {
            tls: tls.transpose()?.map(Into::into),
            connections_max: self.connections_max,
            diagnosis: Diagnosis(|error| {
                diagnosis::of_connection(error).unwrap_or_else(|| error.to_string())
            }),
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
    pub(super) fn scheduler(
        &mut self,
        client: &Client,
        listener: Option<TcpListener>,
    ) -> Result<(Channel, Option<Standby>)> {
        let (channel, standby) = self.scheduler_channel(client, listener)?;
        if let Some((scheduler, _)) = &standby {
            scheduler.register(&mut self.registry);
        }
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
            let url = url.unwrap_or_else(|| self.options.url(SCHEDULER_PORT));
            return Ok((self.peers.channel(&url)?, None));
        };
        ensure!(
            self.options.scheduler.is_none(),
            "--scheduler is the URL of an external scheduler: add --without scheduler"
        );
        let scheduler = dormouse_scheduler::Server::new(client.clone());
        let service = channel::in_process(scheduler.in_process());
        Ok((service, Some((scheduler, self.for_roles(listener)?))))
    }

    /// Starts to follow the store for the controller, and for the scheduler in this process.
    pub(super) fn follow(
        &mut self,
        client: &Client,
        standby: Option<Standby>,
    ) -> mpsc::Receiver<Batch> {
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

/// The store of a data directory.
async fn open(data: DataDir) -> Result<Store> {
    let path = data.path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Store::open(Limits::default(), &data));
    opened
        .await?
        .with_context(|| format!("failed to open the data directory `{path}`"))
}

//! The nodes: their streams, and the certificates of those that join.

use std::sync::Arc;

use anyhow::{Context, Result};
use dormouse_cluster::Client;
use dormouse_fleet::{Callers, Incoming, join};
use dormouse_trust::Clients;
use tokio::net::TcpListener;
use tracing::info;

use super::{Roles, checks};
use crate::trust::{Registrar, Tokens};

/// Connections of processes that join or renew their certificates, those in a handshake included; further ones wait.
pub(crate) const JOINS_MAX: usize = 256;
/// Most requests of clients without a certificate that are open at the port of joins. They have half of its connections.
const OPEN_JOINS_MAX: usize = 512;
const _: () = assert!(JOINS_MAX / 2 * Callers::Joining.streams_max() as usize <= OPEN_JOINS_MAX);

impl Roles {
    /// Serves the nodes as soon as the activator in this process is ready: an entry sends connections to it.
    pub(super) fn serve_fleet(
        &mut self,
        fleet: dormouse_fleet::Handle,
        listener: TcpListener,
        activator: Option<dormouse_activator::Handle>,
    ) -> Result<()> {
        let mut incoming = Incoming::new(listener, self.connections_max);
        if let Some(trust) = &self.trust {
            incoming = incoming.secured_with_reason(trust.listener(Clients::Required)?);
        }
        info!(max = incoming.clients_max(), "limit of connected nodes");
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
        Ok(())
    }

    /// Signs the certificates of joining processes, and renews those of this one.
    pub(super) async fn serve_joins(
        &mut self,
        client: &Client,
        fleet: dormouse_fleet::Handle,
        listener: Option<TcpListener>,
    ) -> Result<Option<Registrar>> {
        let Some((trust, listener)) = self.trust.clone().zip(listener) else {
            return Ok(None);
        };
        let config = trust.listener(Clients::Requested)?;
        let incoming = Incoming::new(listener, JOINS_MAX).secured(config);
        let tokens = Tokens::new(client.clone());
        let registrar = Registrar::open(Arc::clone(&trust), tokens, fleet).await?;
        let served = join::serve(incoming, registrar.clone(), self.shutdown.clone());
        self.running
            .spawn(async move { served.await.context("joins failed") });
        let renewed = trust.renew(self.shutdown.clone());
        let swept = registrar.clone().sweep(self.shutdown.clone());
        self.running.spawn(async move {
            tokio::join!(renewed, swept);
            Ok(())
        });
        Ok(Some(registrar))
    }
}

//! The listeners of the roles in this process. All are bound before the store is opened: a second control plane on the
//! same ports ends here, and has changed nothing.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::net::TcpListener;

use super::options::{Options, Role};
use super::{
    ACTIVATOR_PORT, API_PORT, FLEET_PORT, JOIN_PORT, METRICS_PORT, SCHEDULER_PORT, STORE_PORT,
};
use crate::listen::listen;

/// The listeners of `dormouse up`.
pub(super) struct Listeners {
    /// None: the store is in another process.
    pub(super) store: Option<TcpListener>,
    /// None: the scheduler is in another process.
    pub(super) scheduler: Option<TcpListener>,
    pub(super) fleet: TcpListener,
    /// None: there are no certificates.
    pub(super) joins: Option<TcpListener>,
    pub(super) activators: TcpListener,
    pub(super) api: TcpListener,
    pub(super) metrics: TcpListener,
}

impl Listeners {
    pub(super) async fn bind(options: &Options) -> Result<Self> {
        Ok(Self {
            store: own(options, Role::Store, options.at(STORE_PORT), "store").await?,
            scheduler: own(
                options,
                Role::Scheduler,
                options.at(SCHEDULER_PORT),
                "scheduler",
            )
            .await?,
            fleet: listen(options.at(FLEET_PORT), "fleet").await?,
            joins: if options.trust.insecure {
                None
            } else {
                Some(listen(options.at(JOIN_PORT), "joins").await?)
            },
            activators: listen(options.at(ACTIVATOR_PORT), "activators").await?,
            api: listen(options.at(API_PORT), "API").await?,
            metrics: listen(options.at(METRICS_PORT), "metrics").await?,
        })
    }
}

/// Listens for a role, unless it is in another process.
async fn own(
    options: &Options,
    role: Role,
    address: SocketAddr,
    name: &str,
) -> Result<Option<TcpListener>> {
    if options.without.contains(&role) {
        return Ok(None);
    }
    listen(address, name).await.map(Some)
}

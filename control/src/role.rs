//! A role of the control plane in a process of its own: its certificate, and its clients of the other roles.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use dormouse_apps::epoch;
use dormouse_cluster::{Channel, Client, channel};
use dormouse_fleet::Incoming;
use dormouse_fleet::client::{Target, plain};
use dormouse_fleet::membership::{FOLDER, Membership, invitation};
use dormouse_trust::server::administers;
use dormouse_trust::{Clients, Identity};
use tokio::net::TcpListener;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// Timeout of the first connection to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of connection attempts to the store.
const CONNECT_RETRY: Duration = Duration::from_millis(100);
/// Connections from other roles to a port for them, those in a handshake included; further ones wait.
pub(crate) const ROLES_MAX: usize = 96;

/// How a role gets its certificate.
#[derive(Args, Debug, Clone)]
pub struct JoinFlags {
    /// Line of `dormouse token create --role`, or a file with it: the role joins a cluster with certificates, and gets its own. The line is not
    /// needed again while the certificate in --state-dir is renewed
    #[arg(long, env = "DORMOUSE_JOIN", hide_env_values = true)]
    pub join: Option<String>,
    /// Folder in which the role keeps its certificate
    #[arg(long, default_value = "/var/lib/dormouse", env = "DORMOUSE_STATE_DIR")]
    pub state_dir: PathBuf,
}

impl JoinFlags {
    /// Joins if there is a line; renews the certificate until `shutdown`.
    pub(crate) async fn open(&self, role: &str, shutdown: &CancellationToken) -> Result<Member> {
        let folder = self.state_dir.join(role).join(FOLDER);
        let identity = Identity::control(role)?;
        let missing = format!(
            "run `{}`, and start this with --join and the line that it prints",
            invitation(&identity)
        );
        let opened = Membership::open(&folder, identity, self.join.as_deref()).await?;
        let Some(membership) = opened else {
            return Ok(Member {
                peers: Peers::new(None, missing),
                listener: None,
                metrics: None,
                joined: None,
            });
        };
        let member = Member {
            peers: Peers::new(Some(membership.client()?), missing),
            listener: Some(membership.listener(Clients::Only(administers))?),
            metrics: Some(membership.listener(Clients::Requested)?),
            joined: Some(membership.host().to_owned()),
        };
        tokio::spawn(membership.renew(shutdown.clone()));
        Ok(member)
    }
}

/// A role with a certificate, or without one where all is on one host.
pub(crate) struct Member {
    /// The other roles.
    pub(crate) peers: Peers,
    listener: Option<Arc<ServerConfig>>,
    metrics: Option<Arc<ServerConfig>>,
    /// The host at which it has joined.
    joined: Option<String>,
}

impl Member {
    /// The URL of another role: the given one, that port of the host at which this one has joined, or of this host.
    pub(crate) fn url(&self, given: Option<&str>, port: u16) -> String {
        match (given, &self.joined) {
            (Some(given), _) => given.to_owned(),
            (None, Some(host)) => format!("https://{host}:{port}"),
            (None, None) => format!("http://[::1]:{port}"),
        }
    }

    /// A port for other roles: with TLS, or for this host only.
    pub(crate) fn incoming(
        &self,
        listener: TcpListener,
        connections_max: usize,
    ) -> Result<Incoming> {
        let address = listener.local_addr()?;
        let incoming = Incoming::new(listener, connections_max);
        if let Some(config) = &self.listener {
            return Ok(incoming.secured(Arc::clone(config)));
        }
        ensure!(
            address.ip().is_loopback(),
            "{address} can be reached from other hosts, and this role has no certificate: {}; or listen on ::1",
            self.peers.missing
        );
        Ok(incoming)
    }

    /// The port of the metrics: with TLS, where clients need no certificate to ask for the health. Without a certificate, other hosts get the
    /// health only.
    pub(crate) fn metrics(&self, listener: TcpListener) -> Incoming {
        let incoming = Incoming::new(listener, metrics::CONNECTIONS_MAX);
        match &self.metrics {
            Some(config) => incoming.secured(Arc::clone(config)),
            None => incoming,
        }
    }
}

/// The other roles as this process reaches them.
#[derive(Clone)]
pub(crate) struct Peers {
    tls: Option<Arc<ClientConfig>>,
    /// What to do where a certificate is missing.
    missing: String,
}

impl Peers {
    /// The other roles, with the TLS that this process has; `missing` is what to do if it has none.
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>, missing: String) -> Self {
        Self { tls, missing }
    }

    /// The role at a URL. Plain text leaves no host.
    pub(crate) fn target(&self, url: &str) -> Result<Target> {
        if url.starts_with("https:") {
            let tls = self.tls.clone();
            let tls = tls
                .with_context(|| format!("there is no certificate for {url}: {}", self.missing))?;
            return Ok(Target::secured(url, tls)?);
        }
        let remedy = match &self.tls {
            Some(_) => String::new(),
            None => format!("; for that, {}", self.missing),
        };
        Ok(plain(url, &remedy)?)
    }

    /// A channel that connects on first use and reconnects.
    pub(crate) fn channel(&self, url: &str) -> Result<Channel> {
        Ok(channel::over(self.target(url)?.lazy()))
    }

    /// A client of the store; waits until the store responds.
    pub(crate) async fn store(&self, url: &str) -> Result<Client> {
        let client = Client::over(self.channel(url)?).await?;
        let mut reason = String::new();
        let response = async {
            while let Err(error) = client.range(epoch::EPOCH_KEY, 0).await {
                reason = dormouse_command::error_chain(&error);
                tokio::time::sleep(CONNECT_RETRY).await;
            }
        };
        let responds = tokio::time::timeout(CONNECT_TIMEOUT, response)
            .await
            .is_ok();
        ensure!(
            responds,
            "the store at {url} does not respond: is it running? The last attempt: {reason}"
        );
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_leaves_no_host_and_tls_needs_a_certificate() {
        let peers = Peers::new(None, "join".to_owned());
        assert!(peers.target("http://[::1]:2379").is_ok());
        for (url, reason) in [
            ("http://[2001:db8::c]:2379", "plain text to another host"),
            ("http://store:2379", "write https://; for that, join"),
            (
                "https://[::1]:2379",
                "no certificate for https://[::1]:2379: join",
            ),
            ("::", "not a URL"),
        ] {
            let error = format!("{:#}", peers.target(url).err().unwrap());
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}

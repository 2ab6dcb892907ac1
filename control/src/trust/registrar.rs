//! The decision who gets a certificate: a process with a token, or with a certificate that is renewed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use dormouse_fleet::join::{self, Asked};
use dormouse_fleet::join_proto::Signed;
use dormouse_trust::guesses::Guesses;
use dormouse_trust::{Identity, JoinLine, Token};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Status;
use tracing::{info, warn};

use super::tokens::{CreateError, Refused, Subject, Tokens};
use super::{LOCAL, Trust};
use crate::up::{FLEET_PORT, JOIN_PORT};

/// Signs the certificates of a cluster's processes.
#[derive(Clone)]
pub struct Registrar {
    trust: Arc<Trust>,
    tokens: Tokens,
    fleet: dormouse_fleet::Handle,
    guesses: Arc<Mutex<Guesses>>,
    started: Instant,
}

impl Registrar {
    /// The registrar of this control plane; the nodes that the store has as revoked are refused from now on.
    pub async fn open(
        trust: Arc<Trust>,
        tokens: Tokens,
        fleet: dormouse_fleet::Handle,
    ) -> Result<Self> {
        for (node, at) in tokens.revoked().await? {
            fleet.revoke(&node, at);
        }
        Ok(Self {
            trust,
            tokens,
            fleet,
            guesses: Arc::default(),
            started: Instant::now(),
        })
    }

    /// The tokens of the cluster.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Makes a token, and the line with which a process joins.
    pub async fn invite(&self, subject: Subject, ttl: Duration) -> Result<JoinLine, CreateError> {
        Ok(JoinLine {
            address: (self.trust.address(), JOIN_PORT).into(),
            authority: self.trust.authority().hash(),
            token: self.tokens.create(subject, ttl).await?,
        })
    }

    /// Revokes a node: its stream ends, and its certificates are refused. It may join again with a new token.
    pub async fn revoke(&self, node: &str) -> Result<(), dormouse_cluster::ClientError> {
        let now = SystemTime::now();
        self.tokens.revoke(node, now).await?;
        self.fleet.revoke(node, now);
        info!(node, "a node was revoked");
        Ok(())
    }

    async fn admit(&self, asked: &Asked) -> Result<Identity, Status> {
        let Some(token) = &asked.token else {
            return self.renewed(asked);
        };
        let from = asked.from.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        self.may_guess(from)?;
        let identity = self.redeemed(token, &asked.node).await;
        identity.inspect_err(|refused| {
            if refused.code() == tonic::Code::PermissionDenied {
                self.guesses.lock().failed(from, self.started.elapsed());
            }
            warn!(client = %from, node = asked.node, reason = refused.message(), "a process does not join");
        })
    }

    fn may_guess(&self, from: IpAddr) -> Result<(), Status> {
        let admitted = self.guesses.lock().admit(from, self.started.elapsed());
        admitted.map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            Status::resource_exhausted(format!(
                "too many wrong tokens: the next attempt is possible in {seconds} s"
            ))
        })
    }

    async fn redeemed(&self, token: &Token, node: &str) -> Result<Identity, Status> {
        let redeemed = self.tokens.redeem(token, node).await;
        let (subject, identity) = redeemed.map_err(|refused| match refused {
            Refused::Unknown => Status::permission_denied(refused.to_string()),
            Refused::Store(_) => Status::unavailable(refused.to_string()),
            Refused::Other(..) | Refused::Name(_) => Status::invalid_argument(refused.to_string()),
        })?;
        let was_revoked = self.fleet.revocations().floor(&identity).is_some();
        if subject == Subject::Nodes && (was_revoked || self.fleet.is_connected(node)) {
            return Err(Status::already_exists(format!(
                "the node {node} is connected, or was revoked: a token that names it is needed (dormouse token create --node {node})"
            )));
        }
        Ok(identity)
    }

    /// The identity of a certificate that may be renewed.
    fn renewed(&self, asked: &Asked) -> Result<Identity, Status> {
        let none = || Status::unauthenticated("neither a token nor a certificate is there");
        let client = asked.client.as_ref().ok_or_else(none)?;
        if self.fleet.revocations().refuses(client) {
            return Err(Status::permission_denied(format!(
                "{} was revoked: its certificate is not renewed",
                client.identity
            )));
        }
        // It was valid when the connection began.
        if !client.validity.contains(SystemTime::now()) {
            return Err(Status::unauthenticated(format!(
                "the certificate of {} has expired: join again with a new token",
                client.identity
            )));
        }
        match &client.identity {
            Identity::User { name, .. } => Err(Status::permission_denied(format!(
                "the certificate of the user {name} is not renewed here"
            ))),
            Identity::Node(_) | Identity::Control(_) => Ok(client.identity.clone()),
        }
    }
}

impl join::Registrar for Registrar {
    async fn sign(&self, asked: Asked) -> Result<Signed, Status> {
        let identity = self.admit(&asked).await?;
        let floor = self.fleet.revocations().floor(&identity);
        let authority = self.trust.authority();
        let names = names(&identity, asked.from);
        let validity = self.trust.validity(floor);
        let chain = authority.sign(&asked.request, &identity, &names, validity);
        let chain = chain.map_err(|error| Status::invalid_argument(error.to_string()))?;
        if asked.token.is_some() {
            let client = asked.from.map(tracing::field::display);
            info!(identity = %identity, client, "a process has joined");
        }
        Ok(Signed {
            chain: chain.iter().map(|one| one.to_vec()).collect(),
            authorities: vec![authority.certificate().to_vec()],
            control: format!("https://[{}]:{FLEET_PORT}", self.trust.address()),
        })
    }
}

/// The names of a server that a process is: a role of the control plane is one at the address from which it joins, and for clients on its host.
fn names(identity: &Identity, from: Option<IpAddr>) -> Vec<String> {
    if !matches!(identity, Identity::Control(_)) {
        return Vec::new();
    }
    let from = from.map(|from| from.to_canonical().to_string());
    let local = LOCAL.map(str::to_owned).into_iter();
    local
        .chain(from)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

//! The decision who gets a certificate: a process with a token, or with a certificate that is renewed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use dormouse_fleet::join::{self, Asked};
use dormouse_fleet::join_proto::Signed;
use dormouse_trust::diagnosis::at;
use dormouse_trust::guesses::Guesses;
use dormouse_trust::{Identity, JoinLine, Token};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};

use super::known::Known;
use super::tokens::{Admission, CreateError, REVOKED, Refused, Subject, Tokens};
use super::{LOCAL, Trust};
use crate::up::{FLEET_PORT, JOIN_PORT};

/// Interval in which tokens that have expired are deleted.
const SWEEP: Duration = Duration::from_hours(1);
/// Longest time by which the host that revoked a node may have been ahead of this one.
const AHEAD_MAX: Duration = Duration::from_mins(1);

/// The code with which a wrong token is refused, and nothing else.
const GUESS: tonic::Code = tonic::Code::PermissionDenied;

/// Signs the certificates of a cluster's processes.
#[derive(Clone)]
pub struct Registrar {
    trust: Arc<Trust>,
    tokens: Tokens,
    fleet: dormouse_fleet::Handle,
    guesses: Arc<Mutex<Guesses>>,
    known: Arc<Mutex<Known>>,
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
            known: Arc::default(),
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
        // First: it holds here also if the store answers too late, or the client does not wait.
        self.fleet.revoke(node, now);
        self.tokens.revoke(node, now).await?;
        info!(node, "a node was revoked");
        Ok(())
    }

    /// Deletes the tokens that have expired, now and from time to time, until `shutdown`.
    pub async fn sweep(self, shutdown: CancellationToken) {
        let sweeping = async {
            loop {
                match self.tokens.sweep(SystemTime::now()).await {
                    Ok(0) => {}
                    Ok(tokens) => info!(tokens, "deleted tokens that have expired"),
                    Err(error) => warn!(%error, "failed to delete tokens that have expired"),
                }
                sleep(SWEEP).await;
            }
        };
        shutdown.run_until_cancelled(sweeping).await;
    }

    /// Signs for a process with a token, which is used up only then: a join that is refused may be tried again.
    async fn join(&self, token: &Token, asked: &Asked) -> Result<Signed, Status> {
        let from = asked.from.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        self.may_guess(from)?;
        let joining = async {
            let admission = self.admit(token, &asked.node).await?;
            let signed = self.signed(&admission.identity, asked)?;
            self.tokens
                .use_up(&admission)
                .await
                .map_err(|refused| status(&refused))?;
            Ok::<_, Status>((admission.identity, signed))
        };
        match joining.await {
            Ok((identity, signed)) => {
                info!(%identity, client = %from, "a process has joined");
                Ok(signed)
            }
            Err(refused) => {
                if refused.code() == GUESS {
                    self.guesses.lock().failed(from, self.started.elapsed());
                }
                warn!(client = %from, node = asked.node, reason = refused.message(), "a process does not join");
                Err(refused)
            }
        }
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

    async fn admit(&self, token: &Token, node: &str) -> Result<Admission, Status> {
        let admission = match self.tokens.admit(token, node).await {
            Err(Refused::Unknown) if self.known.lock().has(token) => Err(Refused::Used),
            admitted => admitted,
        };
        // Before it is used up, or deleted: another process with it, now or later, has not guessed it.
        if matches!(admission, Ok(_) | Err(Refused::Expired(_))) {
            self.known.lock().insert(token);
        }
        let admission = admission.map_err(|refused| status(&refused))?;
        let floor = self.fleet.revocations().floor(&admission.identity);
        let is_taken = floor.is_some() || self.fleet.is_connected(node);
        if admission.subject == Subject::Nodes && is_taken {
            return Err(Status::already_exists(format!(
                "the node {node} is connected, or was revoked: a token that names it is needed (dormouse token create --node {node})"
            )));
        }
        Ok(admission)
    }

    /// Signs the request of an identity.
    fn signed(&self, identity: &Identity, asked: &Asked) -> Result<Signed, Status> {
        let floor = self.fleet.revocations().floor(identity);
        check_floor(identity, floor, SystemTime::now())?;
        let authority = self.trust.authority();
        let names = names(identity, asked.from);
        let validity = self.trust.validity(floor);
        let chain = authority.sign(&asked.request, identity, &names, validity);
        let chain = chain.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Signed {
            chain: chain.iter().map(|one| one.to_vec()).collect(),
            authorities: vec![authority.certificate().to_vec()],
            control: format!("https://[{}]:{FLEET_PORT}", self.trust.address()),
        })
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
        match &asked.token {
            Some(token) => self.join(token, &asked).await,
            None => self.signed(&self.renewed(&asked)?, &asked),
        }
    }
}

fn status(refused: &Refused) -> Status {
    match refused {
        Refused::Unknown => Status::new(GUESS, refused.to_string()),
        Refused::Used | Refused::Expired(_) => Status::failed_precondition(refused.to_string()),
        Refused::Store(_) | Refused::UseUp(_) => Status::unavailable(refused.to_string()),
        Refused::Other(..) | Refused::Name(_) => Status::invalid_argument(refused.to_string()),
    }
}

/// Fails if a node was revoked by a clock that was ahead: a certificate would begin only then.
fn check_floor(
    identity: &Identity,
    floor: Option<SystemTime>,
    now: SystemTime,
) -> Result<(), Status> {
    let Some(floor) = floor.filter(|floor| *floor > now + AHEAD_MAX) else {
        return Ok(());
    };
    let [at, now] = [floor, now].map(at);
    Err(Status::failed_precondition(format!(
        "{identity} was revoked at {at} by the clock of the control plane then, which shows {now} now: its certificates are refused until then; if that time is wrong, delete the record of the revocation from the store (etcdctl del {REVOKED}NAME) and start the control plane again"
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_revoked_by_a_clock_that_was_ahead_is_refused_with_both_times() {
        let node = Identity::node("a").unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        assert!(check_floor(&node, None, now).is_ok());
        assert!(check_floor(&node, Some(now + Duration::from_secs(1)), now).is_ok());
        let refused = check_floor(&node, Some(now + Duration::from_hours(24 * 365)), now);
        let refused = refused.unwrap_err();
        let text = refused.message();
        for part in ["system:node:a", "2028-01-15", "2027-01-15", "etcdctl del"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

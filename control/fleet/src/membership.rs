//! The membership of a node or a role in a cluster with certificates: its certificate and key in a folder, joining with a token, and renewal.

mod error;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_command::error_chain;
use dormouse_trust::folder::{self, FolderError};
use dormouse_trust::server::{self, TlsError};
use dormouse_trust::{Clients, Credentials, Current, Identity, JoinLine};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use error::RenewalError;
pub use error::{KeptError, MembershipError};

use crate::client::{self, Backoff, LinkError, Target, jitter};
use crate::join::{self, JoinError, Joined};

/// The folder of a membership in the folder of a process' state.
pub const FOLDER: &str = "identity";
/// Certificate and key of a node, and of a role.
pub const NODE: &str = "node.pem";
const ROLE: &str = "role.pem";
/// The authorities of the cluster.
pub const AUTHORITIES: &str = "ca.crt";
/// The addresses of the cluster.
const CLUSTER: &str = "cluster.json";
/// Longest pause between looks at the clock: it may be set.
const LOOK: Duration = Duration::from_mins(1);
/// Shortest pause.
const LOOK_LEAST: Duration = Duration::from_millis(100);

/// Where control listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cluster {
    /// URL of the fleet stream.
    control: String,
    /// URL for joining and for renewal.
    join: String,
}

/// A process that has joined.
#[derive(Debug)]
pub struct Membership {
    identity: Identity,
    folder: PathBuf,
    current: Arc<Current>,
    authorities: Vec<CertificateDer<'static>>,
    cluster: Cluster,
}

impl Membership {
    /// The membership of a process with this identity: that in its folder while it is valid, or a new one with the line of `--join`. None without
    /// both. With an expired one the process starts, too: a node's data path needs no control.
    pub async fn open(
        folder: &Path,
        identity: Identity,
        line: Option<&str>,
    ) -> Result<Option<Self>, MembershipError> {
        let kept = Self::load(folder, &identity);
        let kept = kept.map_err(|source| MembershipError::Kept {
            folder: folder.into(),
            source: Box::new(source),
        })?;
        let now = SystemTime::now();
        let is_valid = |kept: &Self| {
            let validity = kept.current.credentials().validity();
            validity.is_some_and(|validity| validity.contains(now))
        };
        match (kept, line) {
            (Some(kept), _) if is_valid(&kept) => Ok(Some(kept)),
            (_, Some(line)) => {
                let line = line_of(line)?;
                Self::join(folder, identity, &line).await.map(Some)
            }
            (Some(kept), None) => {
                warn!(
                    "the certificate of {identity} is not valid now, and control will refuse it: the process was stopped for longer than its life, or the clock is wrong; if the clock is right, run `{}`, and start it with --join and the line that is printed",
                    invitation(&identity)
                );
                Ok(Some(kept))
            }
            (None, None) => Ok(None),
        }
    }

    fn load(folder: &Path, identity: &Identity) -> Result<Option<Self>, KeptError> {
        let path = folder.join(file(identity));
        if !path.exists() {
            return Ok(None);
        }
        let credentials = folder::load(&path, &path)?;
        let kept = credentials.identity()?;
        if kept != *identity {
            let wanted = identity.clone();
            return Err(KeptError::Other { kept, wanted });
        }
        let cluster = std::fs::read(folder.join(CLUSTER))?;
        Ok(Some(Self {
            identity: kept,
            authorities: folder::load_certificates(&folder.join(AUTHORITIES))?,
            cluster: serde_json::from_slice(&cluster)?,
            current: Current::new(credentials)?,
            folder: folder.to_owned(),
        }))
    }

    async fn join(
        folder: &Path,
        wanted: Identity,
        line: &JoinLine,
    ) -> Result<Self, MembershipError> {
        // Before the token is used up: most folders that cannot be written are found here.
        folder::create_folder(folder).map_err(MembershipError::Folder)?;
        let joined = join::join(line, node(&wanted)).await;
        let joined = joined.map_err(|source| MembershipError::Join {
            address: line.address,
            source,
        })?;
        let issued = joined.credentials.identity()?;
        if issued != wanted {
            let invitation = invitation(&wanted);
            return Err(MembershipError::Issued {
                issued,
                wanted,
                invitation,
            });
        }
        let membership = Self {
            identity: issued,
            cluster: Cluster {
                control: joined.control.clone(),
                join: format!("https://{}", line.address),
            },
            current: Current::new(joined.credentials.clone())?,
            authorities: joined.authorities.clone(),
            folder: folder.to_owned(),
        };
        let kept = membership.keep(&joined.credentials);
        kept.map_err(|source| MembershipError::Keep {
            invitation: invitation(&membership.identity),
            source,
        })?;
        info!(identity = %membership.identity, control = membership.cluster.control, "joined the cluster");
        Ok(membership)
    }

    /// Writes the certificate last: with it, the membership is complete.
    fn keep(&self, credentials: &Credentials) -> Result<(), FolderError> {
        folder::create_folder(&self.folder)?;
        folder::keep_certificates(&self.folder.join(AUTHORITIES), &self.authorities)?;
        // A failure is impossible: two strings.
        let cluster = serde_json::to_string(&self.cluster).unwrap_or_default();
        folder::keep_secret(&self.folder.join(CLUSTER), &cluster)?;
        folder::keep(&self.folder.join(file(&self.identity)), credentials)
    }

    /// Control as the process reaches it, at this URL or at that of its cluster.
    pub fn target(&self, control: Option<&str>) -> Result<Target, JoinError> {
        let url = control.unwrap_or(&self.cluster.control);
        Ok(Target::secured(url, self.client()?)?)
    }

    /// The TLS of the process as a client of others of its cluster.
    pub fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        dormouse_trust::client::config(&self.authorities, Some(Arc::clone(&self.current)))
    }

    /// The TLS of a probe of the health of roles.
    pub fn probe(&self) -> Result<Arc<ClientConfig>, TlsError> {
        dormouse_trust::client::probing(&self.authorities)
    }

    /// The TLS of a listener of the process: that of a role, whose certificate is for the address from which it joined, too.
    pub fn listener(&self, clients: Clients) -> Result<Arc<ServerConfig>, TlsError> {
        let certificate = Arc::clone(&self.current);
        server::config(certificate, &self.authorities, clients)
    }

    /// The host at which the process has joined, as in a URL.
    pub fn host(&self) -> &str {
        let host = self.cluster.join.strip_prefix("https://");
        let host = host.and_then(|rest| rest.rsplit_once(':'));
        host.map_or("[::1]", |(host, _port)| host)
    }

    /// Renews the certificate at two thirds of its life until `shutdown`. Streams that are open go on.
    pub async fn renew(mut self, shutdown: CancellationToken) {
        let renewing = async {
            let mut backoff = Backoff::new();
            let mut is_kept = true;
            loop {
                match self.renew_due(&mut is_kept).await {
                    Ok(wait) => {
                        backoff = Backoff::new();
                        sleep(wait.clamp(LOOK_LEAST, LOOK)).await;
                    }
                    Err(error) => {
                        let reason = error_chain(&error);
                        warn!(identity = %self.identity, reason, "failed to renew the certificate: it is tried again");
                        let pause = backoff.next(jitter());
                        let latest = match error {
                            RenewalError::Sign(_) => pause,
                            RenewalError::Keep(_) => self.renew_in(),
                        };
                        sleep(pause.min(latest)).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(renewing).await;
    }

    /// Renews what is due; the time until the next renewal. A new certificate is used before it is kept, since a disk can be full for longer than
    /// the life of the previous one, which stays in the folder until the new one can be written.
    async fn renew_due(&mut self, is_kept: &mut bool) -> Result<Duration, RenewalError> {
        if self.renew_in().is_zero() {
            let renewed = self.renewed().await?;
            self.current.replace(renewed).map_err(JoinError::from)?;
            *is_kept = false;
        }
        if !*is_kept {
            self.keep(&self.current.credentials())?;
            *is_kept = true;
            info!(identity = %self.identity, "renewed the certificate");
        }
        Ok(self.renew_in())
    }

    fn renew_in(&self) -> Duration {
        let validity = self.current.credentials().validity();
        validity.map_or(Duration::ZERO, |validity| {
            validity.renew_in(SystemTime::now())
        })
    }

    async fn renewed(&mut self) -> Result<Credentials, JoinError> {
        let current = Arc::clone(&self.current);
        let node = node(&self.identity);
        let renewed = join::renew(&self.cluster.join, &self.authorities, current, node);
        let Joined {
            credentials,
            authorities,
            control,
        } = renewed.await?;
        self.authorities = authorities;
        self.cluster.control = control;
        Ok(credentials)
    }
}

/// The target of a process without certificates: a URL `http://…` of this host.
pub fn plain(url: &str, identity: &Identity) -> Result<Target, LinkError> {
    let invitation = invitation(identity);
    if url.starts_with("https:") {
        let url = url.to_owned();
        return Err(LinkError::NoCertificate { url, invitation });
    }
    let remedy = format!(
        "; for that, run `{invitation}`, and start this with --join and the line that it prints"
    );
    client::plain(url, &remedy)
}

/// The command that makes the line with which a process joins.
pub fn invitation(identity: &Identity) -> String {
    match identity {
        Identity::Node(name) => format!("dormouse token create --node {name}"),
        Identity::Control(role) => format!("dormouse token create --role {role}"),
        Identity::User { name, .. } => format!("dormouse token create --user {name}"),
    }
}

/// The name of a node; empty: it is none.
fn node(identity: &Identity) -> &str {
    match identity {
        Identity::Node(name) => name,
        Identity::Control(_) | Identity::User { .. } => "",
    }
}

fn file(identity: &Identity) -> &'static str {
    match identity {
        Identity::Node(_) => NODE,
        Identity::Control(_) | Identity::User { .. } => ROLE,
    }
}

/// The line of `--join`, or of the file that it names.
fn line_of(given: &str) -> Result<JoinLine, MembershipError> {
    if let Ok(line) = given.parse() {
        return Ok(line);
    }
    let text = std::fs::read_to_string(given).map_err(MembershipError::Line)?;
    let line = text.parse();
    line.map_err(|source| MembershipError::File {
        path: given.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;

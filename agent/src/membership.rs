//! The node's membership in a cluster with certificates: its certificate and key in the state folder, joining with a token, and renewal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use dormouse_command::error_chain;
use dormouse_fleet::client::{Backoff, Target, endpoint};
use dormouse_fleet::join::{self, JoinError, Joined};
use dormouse_trust::folder::{self, FolderError};
use dormouse_trust::{Credentials, Current, Identity, JoinLine, client};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::source::fleet::jitter;

/// The folder in the state folder.
pub const FOLDER: &str = "identity";
/// Certificate and key of the node.
const NODE: &str = "node.pem";
/// The authorities of the cluster.
const AUTHORITIES: &str = "ca.crt";
/// The addresses of the cluster.
const CLUSTER: &str = "cluster.json";
/// Longest pause between looks at the clock: it may be set.
const LOOK: Duration = Duration::from_mins(1);

/// Where control listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cluster {
    /// URL of the fleet stream.
    control: String,
    /// URL for joining and for renewal.
    join: String,
}

/// A node that has joined.
#[derive(Debug)]
pub struct Membership {
    node: String,
    folder: PathBuf,
    current: Arc<Current>,
    authorities: Vec<CertificateDer<'static>>,
    cluster: Cluster,
}

impl Membership {
    /// The membership of this node: that in its state folder while it is valid, or a new one with the line of `--join`. None without both.
    /// With an expired one the node starts, too: its data path needs no control.
    pub async fn open(state: &Path, node: &str, line: Option<&str>) -> Result<Option<Self>> {
        let folder = state.join(FOLDER);
        let kept = Self::load(&folder, node).with_context(|| {
            format!(
                "the node's certificate in {} cannot be used: remove the folder and join again",
                folder.display()
            )
        })?;
        let now = SystemTime::now();
        let is_valid = |kept: &Self| {
            let validity = kept.current.credentials().validity();
            validity.is_some_and(|validity| validity.contains(now))
        };
        match (kept, line) {
            (Some(kept), _) if is_valid(&kept) => Ok(Some(kept)),
            (_, Some(line)) => Self::join(folder, node, &line_of(line)?).await.map(Some),
            (Some(kept), None) => {
                warn!(
                    "the node's certificate is not valid now, and control will refuse it: the agent was stopped for longer than its life, or the clock is wrong; if the clock is right, run `dormouse token create --node {node}`, and start the agent with --join and the line that it prints"
                );
                Ok(Some(kept))
            }
            (None, None) => Ok(None),
        }
    }

    fn load(folder: &Path, node: &str) -> Result<Option<Self>> {
        let path = folder.join(NODE);
        if !path.exists() {
            return Ok(None);
        }
        let credentials = folder::load(&path, &path)?;
        let identity = credentials.identity()?;
        ensure!(
            identity == Identity::node(node)?,
            "it is the certificate of {identity}, and --node is {node}"
        );
        let cluster = std::fs::read(folder.join(CLUSTER))?;
        Ok(Some(Self {
            node: node.to_owned(),
            authorities: folder::load_certificates(&folder.join(AUTHORITIES))?,
            cluster: serde_json::from_slice(&cluster)?,
            current: Current::new(credentials)?,
            folder: folder.to_owned(),
        }))
    }

    async fn join(folder: PathBuf, node: &str, line: &JoinLine) -> Result<Self> {
        let joined = join::join(line, node).await;
        let joined = joined.with_context(|| format!("cannot join at {}", line.address))?;
        let identity = joined.credentials.identity()?;
        ensure!(
            identity == Identity::node(node)?,
            "control issued a certificate of {identity}, and --node is {node}"
        );
        let membership = Self {
            node: node.to_owned(),
            cluster: Cluster {
                control: joined.control.clone(),
                join: format!("https://{}", line.address),
            },
            current: Current::new(joined.credentials.clone())?,
            authorities: joined.authorities.clone(),
            folder,
        };
        membership.keep(&joined.credentials)?;
        info!(identity = %identity, control = membership.cluster.control, "joined the cluster");
        Ok(membership)
    }

    /// Writes the certificate last: with it, the membership is complete.
    fn keep(&self, credentials: &Credentials) -> Result<(), FolderError> {
        folder::create_folder(&self.folder)?;
        folder::keep_certificates(&self.folder.join(AUTHORITIES), &self.authorities)?;
        // A failure is impossible: two strings.
        let cluster = serde_json::to_string(&self.cluster).unwrap_or_default();
        folder::keep_secret(&self.folder.join(CLUSTER), &cluster)?;
        folder::keep(&self.folder.join(NODE), credentials)
    }

    /// Control as the node reaches it, at this URL or at that of its cluster.
    pub fn target(&self, control: Option<&str>) -> Result<Target, JoinError> {
        let url = control.unwrap_or(&self.cluster.control);
        let config = client::config(&self.authorities, Some(Arc::clone(&self.current)))?;
        Ok(Target::secured(url, config)?)
    }

    /// Renews the certificate at two thirds of its life until `shutdown`. Streams that are open go on.
    pub async fn renew(mut self, shutdown: CancellationToken) {
        let renewing = async {
            let mut backoff = Backoff::new();
            loop {
                let validity = self.current.credentials().validity();
                let wait = validity.map(|validity| validity.renew_in(SystemTime::now()));
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    sleep(wait.min(LOOK)).await;
                    continue;
                }
                match self.renew_now().await {
                    Ok(()) => backoff = Backoff::new(),
                    Err(error) => {
                        warn!(
                            reason = error_chain(&error),
                            "failed to renew the node's certificate"
                        );
                        sleep(backoff.next(jitter())).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(renewing).await;
    }

    async fn renew_now(&mut self) -> Result<(), JoinError> {
        let current = Arc::clone(&self.current);
        let renewed = join::renew(&self.cluster.join, &self.authorities, current, &self.node);
        let Joined {
            credentials,
            authorities,
            control,
        } = renewed.await?;
        self.authorities = authorities;
        self.cluster.control = control;
        self.current.replace(credentials.clone())?;
        if let Err(error) = self.keep(&credentials) {
            // It is in force; a restart would find the one before.
            warn!(
                reason = error_chain(&error),
                "failed to keep the node's renewed certificate"
            );
        }
        Ok(())
    }
}

/// The target of a node without certificates: `--control` with `http://`.
pub fn plain(control: &str, node: &str) -> Result<Target> {
    ensure!(
        !control.starts_with("https:"),
        "the node has no certificate for {control}: run `dormouse token create --node {node}`, and start the agent with --join and the line that it prints"
    );
    Ok(endpoint(control)?.into())
}

/// The line of `--join`, or of the file that it names.
fn line_of(given: &str) -> Result<JoinLine> {
    let Ok(line) = given.parse() else {
        let text = std::fs::read_to_string(given).context(
            "--join is neither a line of `dormouse token create` nor the path of a file with one",
        )?;
        return text.parse().with_context(|| format!("{given}, of --join"));
    };
    Ok(line)
}

#[cfg(test)]
mod tests;

//! Tokens in the store: what each is for, until when, and the hash of its secret; those with which processes join, and the nodes that
//! are revoked. A token is stored once, and deleted at the revision at which it was read: of two requests for it, one gets it.

mod records;

use std::time::{Duration, SystemTime};

use dormouse_cluster::{Client, ClientError};
use dormouse_trust::diagnosis::at;
use dormouse_trust::identity::IdentityError;
use dormouse_trust::token::TokenError;
use dormouse_trust::{Identity, Token};
use serde::{Deserialize, Serialize};

pub use records::Listed;
use records::{key, seconds, time};

/// Prefix of the keys of join tokens; their ids follow.
const PREFIX: &str = "/registry/dormouse.dev/jointokens/";
/// Prefix of the keys of revoked nodes; their names follow.
pub(super) const REVOKED: &str = "/registry/dormouse.dev/revokednodes/";

/// What a token admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// The node of this name, once.
    Node(String),
    /// Nodes of any name that is not connected.
    Nodes,
    /// A role of the control plane, once.
    Role(String),
}

/// A process that a token admits.
#[derive(Debug)]
pub struct Admission {
    /// What the token is for.
    pub subject: Subject,
    /// The process.
    pub identity: Identity,
    key: String,
    revision: i64,
}

/// Why a token admits nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such token.
    #[error(
        "the token is not valid: it is wrong, expired, or was used before; make another one with dormouse token create"
    )]
    Unknown,
    /// There was such a token.
    #[error("the token was used before, or has ended; make another one with dormouse token create")]
    Used,
    /// The token is right, and has expired at this time.
    #[error("the token expired at {}; make another one with dormouse token create", at(*.0))]
    Expired(SystemTime),
    /// The token is for something else.
    #[error("the token is for {0}, and this process joins as {1}")]
    Other(String, String),
    /// The name cannot be that of a node or role.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The store failed.
    #[error("the token cannot be read: {0}")]
    Store(#[from] ClientError),
    /// The store does not write, as while its disk is full.
    #[error("the token is valid, and its use cannot be stored: {0}")]
    UseUp(#[source] ClientError),
}

/// Errors of making a token.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The name cannot be that of a node, a role or a user.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// There is no randomness.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The store failed.
    #[error("the token cannot be stored: {0}")]
    Store(#[from] ClientError),
}

/// The tokens and revocations of a cluster.
#[derive(Clone)]
pub struct Tokens {
    pub(super) client: Client,
}

impl Tokens {
    /// Those of this store.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Makes a token that is valid for `ttl`. Only its hash is stored.
    pub async fn create(&self, subject: Subject, ttl: Duration) -> Result<Token, CreateError> {
        match &subject {
            Subject::Node(name) => drop(Identity::node(name)?),
            Subject::Role(role) => drop(Identity::control(role)?),
            Subject::Nodes => {}
        }
        self.make(PREFIX, subject, ttl).await
    }

    /// The tokens of processes that have not joined yet.
    pub async fn of_joins(&self) -> Result<Vec<Listed<Subject>>, ClientError> {
        self.list(PREFIX).await
    }

    /// Withdraws the token with this id, with which a process could join; false: there is none.
    pub async fn withdraw(&self, id: &str) -> Result<bool, ClientError> {
        self.delete(PREFIX, id).await
    }

    /// Deletes the tokens of processes and of users that have expired at `now`; returns how many.
    pub async fn sweep(&self, now: SystemTime) -> Result<usize, ClientError> {
        let of_joins = self.delete_expired(PREFIX, now).await?;
        Ok(of_joins + self.delete_expired_of_users(now).await?)
    }

    /// What a token admits, for a process that names itself `node`, or does not (empty). It is not used up yet.
    pub async fn admit(&self, token: &Token, node: &str) -> Result<Admission, Refused> {
        let found = self.find::<Subject>(PREFIX, token).await?;
        let (record, revision) = found.ok_or(Refused::Unknown)?;
        if record.expires() <= SystemTime::now() {
            return Err(Refused::Expired(record.expires()));
        }
        Ok(Admission {
            identity: record.subject.identity(node)?,
            subject: record.subject,
            key: key(PREFIX, token),
            revision,
        })
    }

    /// Uses up a token that is for one process.
    pub async fn use_up(&self, admission: &Admission) -> Result<(), Refused> {
        let is_of_many = admission.subject == Subject::Nodes;
        if is_of_many {
            return Ok(());
        }
        match self.take(&admission.key, admission.revision).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused::Used),
            Err(error) => Err(Refused::UseUp(error)),
        }
    }

    /// Records that a node is revoked.
    pub async fn revoke(&self, node: &str, at: SystemTime) -> Result<(), ClientError> {
        let key = format!("{REVOKED}{node}");
        self.put(&key, &seconds(at), Vec::new()).await.map(drop)
    }

    /// The revoked nodes, and when each was.
    pub async fn revoked(&self) -> Result<Vec<(String, SystemTime)>, ClientError> {
        let (found, _) = self.client.range(REVOKED, 0).await?;
        let revoked = found.iter().filter_map(|kv| {
            let key = kv.key_str().ok()?;
            let seconds = serde_json::from_slice(kv.value()).ok()?;
            Some((key.strip_prefix(REVOKED)?.to_owned(), time(seconds)))
        });
        Ok(revoked.collect())
    }
}

impl Subject {
    fn identity(&self, node: &str) -> Result<Identity, Refused> {
        let named = |name: &str| format!("the node {name}");
        match self {
            Self::Node(name) if node.is_empty() || node == name => Ok(Identity::node(name)?),
            Self::Node(name) => Err(Refused::Other(named(name), named(node))),
            Self::Nodes => Ok(Identity::node(node)?),
            Self::Role(role) if node.is_empty() => Ok(Identity::control(role)?),
            Self::Role(role) => Err(Refused::Other(format!("the role {role}"), named(node))),
        }
    }
}

#[cfg(test)]
mod tests;

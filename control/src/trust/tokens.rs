//! Tokens in the store: what each is for, until when, and the hash of its secret; those with which processes join, and the nodes that
//! are revoked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_cluster::{Client, ClientError};
use dormouse_trust::identity::IdentityError;
use dormouse_trust::token::TokenError;
use dormouse_trust::{Identity, Token};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Prefix of the keys of join tokens; their ids follow.
const PREFIX: &str = "/registry/dormouse.dev/jointokens/";
/// Prefix of the keys of revoked nodes; their names follow.
const REVOKED: &str = "/registry/dormouse.dev/revokednodes/";

/// What a token admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// The node of this name, once.
    Node(String),
    /// Nodes of any name that is not connected.
    Nodes,
    /// A role of the control plane.
    Role(String),
}

/// The record of a token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record<S> {
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    /// What the token is for.
    pub(super) subject: S,
    /// Seconds since 1970.
    expires: u64,
}

/// Why a token admits nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such token.
    #[error(
        "the token is not valid: it is wrong, expired, or was used before; make another one with dormouse token create"
    )]
    Unknown,
    /// The token is for something else.
    #[error("the token is for {0}, and this process joins as {1}")]
    Other(String, String),
    /// The name cannot be that of a node or role.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The store failed.
    #[error("the token cannot be read: {0}")]
    Store(#[from] ClientError),
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

    /// Makes a token, whose key begins with `prefix`.
    pub(super) async fn make(
        &self,
        prefix: &str,
        subject: impl Serialize,
        ttl: Duration,
    ) -> Result<Token, CreateError> {
        let token = Token::create()?;
        let record = Record {
            hash: token.hashed(),
            subject,
            expires: seconds(SystemTime::now() + ttl),
        };
        self.put(&key(prefix, &token), &record).await?;
        Ok(token)
    }

    /// The record of a token, and its revision; none: it is wrong or expired. Expired ones are deleted.
    pub(super) async fn find<S: DeserializeOwned>(
        &self,
        prefix: &str,
        token: &Token,
    ) -> Result<Option<(Record<S>, i64)>, ClientError> {
        let key = key(prefix, token);
        let (found, _) = self.client.range(&key, 0).await?;
        let Some(found) = found.iter().find(|kv| kv.key() == key.as_bytes()) else {
            return Ok(None);
        };
        let record = serde_json::from_slice::<Record<S>>(found.value()).ok();
        let Some(record) = record.filter(|record| token.fits(&record.hash)) else {
            return Ok(None);
        };
        let revision = found.mod_revision();
        if record.expires < seconds(SystemTime::now()) {
            self.take(&key, revision).await?;
            return Ok(None);
        }
        Ok(Some((record, revision)))
    }

    /// What a token admits, and the identity for a process that names itself `node`, or does not (empty). A token of one node is used up.
    pub async fn redeem(&self, token: &Token, node: &str) -> Result<(Subject, Identity), Refused> {
        let found = self.find::<Subject>(PREFIX, token).await?;
        let (record, revision) = found.ok_or(Refused::Unknown)?;
        let identity = record.subject.identity(node)?;
        let is_of_one = matches!(record.subject, Subject::Node(_));
        if is_of_one && !self.take(&key(PREFIX, token), revision).await? {
            return Err(Refused::Unknown);
        }
        Ok((record.subject, identity))
    }

    /// Deletes a token of this revision; false: another request has deleted or replaced it.
    async fn take(&self, key: &str, revision: i64) -> Result<bool, ClientError> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
        let txn = Txn::new()
            .when([unchanged])
            .and_then([TxnOp::delete(key, None)]);
        Ok(self.client.txn(txn).await?.succeeded())
    }

    /// Records that a node is revoked.
    pub async fn revoke(&self, node: &str, at: SystemTime) -> Result<(), ClientError> {
        self.put(&format!("{REVOKED}{node}"), &seconds(at)).await
    }

    /// The revoked nodes, and when each was.
    pub async fn revoked(&self) -> Result<Vec<(String, SystemTime)>, ClientError> {
        let (found, _) = self.client.range(REVOKED, 0).await?;
        let revoked = found.iter().filter_map(|kv| {
            let key = kv.key_str().ok()?;
            let seconds = serde_json::from_slice(kv.value()).ok()?;
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            Some((key.strip_prefix(REVOKED)?.to_owned(), at))
        });
        Ok(revoked.collect())
    }

    async fn put(&self, key: &str, value: &impl Serialize) -> Result<(), ClientError> {
        // A failure is impossible: the records have no maps, and no floating-point numbers.
        let text = serde_json::to_vec(value).unwrap_or_default();
        let txn = Txn::new().and_then([TxnOp::put(key, text, None)]);
        self.client.txn(txn).await.map(drop)
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

fn key(prefix: &str, token: &Token) -> String {
    format!("{prefix}{}", token.id())
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

//! Join tokens in the store: what each admits, until when, and the hash of its secret.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_cluster::{Client, ClientError};
use dormouse_trust::identity::IdentityError;
use dormouse_trust::token::TokenError;
use dormouse_trust::{Identity, Token};
use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use serde::{Deserialize, Serialize};

/// Prefix of the keys of tokens; their ids follow.
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
struct Record {
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    subject: Subject,
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
    /// The name cannot be that of a node or role.
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
    client: Client,
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
        let token = Token::create()?;
        let record = Record {
            hash: token.hashed(),
            subject,
            expires: seconds(SystemTime::now() + ttl),
        };
        self.put(&key(&token), &record).await?;
        Ok(token)
    }

    /// What a token admits, and the identity for a process that names itself `node`, or does not (empty). A token of one node is used up.
    pub async fn redeem(&self, token: &Token, node: &str) -> Result<(Subject, Identity), Refused> {
        let key = key(token);
        let (found, _) = self.client.range(&key, 0).await?;
        let found = found.iter().find(|kv| kv.key() == key.as_bytes());
        let found = found.ok_or(Refused::Unknown)?;
        let record: Record =
            serde_json::from_slice(found.value()).map_err(|_malformed| Refused::Unknown)?;
        if !token.fits(&record.hash) {
            return Err(Refused::Unknown);
        }
        if record.expires < seconds(SystemTime::now()) {
            self.take(&key, found).await?;
            return Err(Refused::Unknown);
        }
        let identity = record.subject.identity(node)?;
        if matches!(record.subject, Subject::Node(_)) {
            self.take(&key, found).await?;
        }
        Ok((record.subject, identity))
    }

    /// Deletes a token, once.
    async fn take(&self, key: &str, found: &KeyValue) -> Result<(), Refused> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, found.mod_revision());
        let txn = Txn::new()
            .when([unchanged])
            .and_then([TxnOp::delete(key, None)]);
        if self.client.txn(txn).await?.succeeded() {
            Ok(())
        } else {
            Err(Refused::Unknown)
        }
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

fn key(token: &Token) -> String {
    format!("{PREFIX}{}", token.id())
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

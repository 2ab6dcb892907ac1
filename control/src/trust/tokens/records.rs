//! Records of tokens of all kinds: those of a kind begin with a prefix, and their ids follow.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_cluster::ClientError;
use dormouse_trust::Token;
use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::{CreateError, Tokens};

/// The last second that a certificate can have, 9999-12-31T23:59:59Z (RFC 5280, 4.1.2.5).
pub(super) const SECONDS_MAX: u64 = 253_402_300_799;

/// The record of a token.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::trust) struct Record<S> {
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    /// What the token is for.
    pub(in crate::trust) subject: S,
    /// From when on it is refused, in seconds since 1970.
    expires: u64,
}

impl<S> Record<S> {
    /// When the token expires.
    pub(in crate::trust) fn expires(&self) -> SystemTime {
        time(self.expires)
    }
}

/// A token in the store, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<S> {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub subject: S,
    /// When it expires.
    pub expires: SystemTime,
}

impl Tokens {
    /// Makes a token, whose key begins with `prefix`.
    pub(in crate::trust) async fn make(
        &self,
        prefix: &str,
        subject: impl Serialize,
        ttl: Duration,
    ) -> Result<Token, CreateError> {
        // The second that has begun counts.
        let expires = seconds(SystemTime::now() + ttl) + 1;
        loop {
            let token = Token::create()?;
            let record = Record {
                hash: token.hashed(),
                subject: &subject,
                expires,
            };
            let key = key(prefix, &token);
            let is_free = Compare::version(key.as_str(), CompareOp::Equal, 0);
            if self.put(&key, &record, vec![is_free]).await? {
                return Ok(token);
            }
        }
    }

    /// The record of a token, which may have expired, and its revision; none: it is wrong.
    pub(in crate::trust) async fn find<S: DeserializeOwned>(
        &self,
        prefix: &str,
        token: &Token,
    ) -> Result<Option<(Record<S>, i64)>, ClientError> {
        let key = key(prefix, token);
        let Some(found) = self.read(&key).await? else {
            return Ok(None);
        };
        let record = serde_json::from_slice::<Record<S>>(found.value()).ok();
        let record = record.filter(|record| token.fits(&record.hash));
        Ok(record.map(|record| (record, found.mod_revision())))
    }

    /// The tokens whose keys begin with `prefix`, without those that have expired.
    pub(in crate::trust) async fn list<S: DeserializeOwned>(
        &self,
        prefix: &str,
    ) -> Result<Vec<Listed<S>>, ClientError> {
        let (found, _) = self.client.range(prefix, 0).await?;
        let now = SystemTime::now();
        let listed = found.iter().filter_map(|kv| {
            let record: Record<S> = serde_json::from_slice(kv.value()).ok()?;
            let id = kv.key_str().ok()?.strip_prefix(prefix)?.to_owned();
            let expires = record.expires();
            (expires > now).then_some(Listed {
                id,
                expires,
                subject: record.subject,
            })
        });
        Ok(listed.collect())
    }

    /// Deletes the token with this id; false: there is none.
    pub(in crate::trust) async fn delete(
        &self,
        prefix: &str,
        id: &str,
    ) -> Result<bool, ClientError> {
        let key = format!("{prefix}{id}");
        match self.read(&key).await? {
            Some(found) => self.take(&key, found.mod_revision()).await,
            None => Ok(false),
        }
    }

    /// Deletes the tokens below `prefix` that have expired at `now`; returns how many.
    pub(in crate::trust) async fn delete_expired(
        &self,
        prefix: &str,
        now: SystemTime,
    ) -> Result<usize, ClientError> {
        let (found, _) = self.client.range(prefix, 0).await?;
        let mut deleted = 0;
        for kv in found {
            let record = serde_json::from_slice::<Record<IgnoredAny>>(kv.value());
            let has_expired = record.is_ok_and(|record| record.expires() <= now);
            if let (true, Ok(key)) = (has_expired, kv.key_str()) {
                deleted += usize::from(self.take(key, kv.mod_revision()).await?);
            }
        }
        Ok(deleted)
    }

    /// The key-value pair of exactly this key.
    pub(super) async fn read(&self, key: &str) -> Result<Option<KeyValue>, ClientError> {
        let (found, _) = self.client.range(key, 0).await?;
        Ok(found.into_iter().find(|kv| kv.key() == key.as_bytes()))
    }

    /// Deletes a token of this revision; false: another request has deleted or replaced it.
    pub(super) async fn take(&self, key: &str, revision: i64) -> Result<bool, ClientError> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
        let txn = Txn::new()
            .when([unchanged])
            .and_then([TxnOp::delete(key, None)]);
        Ok(self.client.txn(txn).await?.succeeded())
    }

    /// Writes a record; false: a condition does not hold.
    pub(super) async fn put(
        &self,
        key: &str,
        value: &impl Serialize,
        conditions: Vec<Compare>,
    ) -> Result<bool, ClientError> {
        // A failure is impossible: the records have no maps, and no floating-point numbers.
        let text = serde_json::to_vec(value).unwrap_or_default();
        let txn = Txn::new().when(conditions);
        let txn = txn.and_then([TxnOp::put(key, text, None)]);
        Ok(self.client.txn(txn).await?.succeeded())
    }
}

pub(super) fn key(prefix: &str, token: &Token) -> String {
    format!("{prefix}{}", token.id())
}

/// A time that certificates can have.
pub(super) fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX))
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

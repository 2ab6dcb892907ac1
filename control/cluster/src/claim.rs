//! VIP claims: a key per allocated VIP, written in the same transaction as its app, so that no two
//! apps have the same VIP.

use std::net::Ipv6Addr;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::sync::Mutex;

use crate::{
    App, Client, ClientError, Guard, Key, Object, VipIndex, VipRange,
    client::{encode, revision_of},
    history, vip,
};

/// Prefix of the claims' keys. The VIP index follows as eight hexadecimal digits, so keys sort by index.
pub const PREFIX: &str = "/registry/dormouse.dev/vips/";
/// Attempts of a create whose allocated VIP is claimed by concurrent creates.
const ATTEMPTS_MAX: u32 = 32;

/// Creates and deletes apps together with their VIP claims.
pub struct Claims {
    client: Client,
    ranges: Vec<VipRange>,
    /// A cache of the claimed indexes, sorted, to find a free one; `None` before the first use. The
    /// store's transaction decides, so a stale cache costs an attempt, never a double claim.
    claimed: Mutex<Option<Vec<VipIndex>>>,
}

/// An error of creating or deleting an app.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The VIP is claimed by another app.
    #[error("VIP {vip} belongs to app {owner}")]
    Taken {
        /// The requested address.
        vip: Ipv6Addr,
        /// The app that has claimed it, as `namespace/name`.
        owner: String,
    },
    /// Every address of every range is claimed.
    #[error("no VIP left in {0}")]
    Exhausted(String),
    /// The address lies in none of the cluster's ranges.
    #[error("VIP {vip} lies outside {ranges}")]
    Outside {
        /// The requested address.
        vip: Ipv6Addr,
        /// The cluster's VIP ranges.
        ranges: String,
    },
    /// The store failed, or the app exists already.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Result of one attempt to create an app.
enum Attempt {
    Created(u64),
    AppExists,
    ClaimedBy(String),
}

impl Claims {
    /// Claims of VIPs in `ranges`.
    pub fn new(client: Client, ranges: Vec<VipRange>) -> Self {
        Self {
            client,
            ranges,
            claimed: Mutex::new(None),
        }
    }

    /// The cluster's VIP ranges.
    pub fn ranges(&self) -> &[VipRange] {
        &self.ranges
    }

    /// Creates an app with the VIP of its spec, or with the lowest free one; `spec.vip` of the returned
    /// app is set.
    pub async fn create(&self, mut app: App) -> Result<App, ClaimError> {
        let requested = app.spec.vip;
        for _ in 0..ATTEMPTS_MAX {
            let (vip, index) = self.choose(requested).await?;
            app.spec.vip = Some(vip);
            app.status.get_or_insert_default().vip = Some(vip);
            match self.attempt(&app, index).await? {
                Attempt::Created(revision) => {
                    self.cache(index, true).await;
                    app.metadata.resource_version = Some(revision.to_string());
                    return Ok(app);
                }
                Attempt::AppExists => {
                    return Err(ClientError::AlreadyExists {
                        path: App::path(&app.key()),
                    }
                    .into());
                }
                Attempt::ClaimedBy(owner) if requested.is_some() => {
                    return Err(ClaimError::Taken { vip, owner });
                }
                Attempt::ClaimedBy(_) => self.cache(index, true).await,
            }
        }
        Err(ClientError::Conflict {
            path: App::path(&app.key()),
        }
        .into())
    }

    /// Deletes an app if `guard` holds, and its claim and revisions in the same transaction.
    pub async fn delete(&self, app: &App, guard: &Guard) -> Result<u64, ClaimError> {
        let path = App::path(&app.key());
        let at = guard.revision.unwrap_or_else(|| app.revision());
        let exists = Compare::mod_revision(
            path.as_str(),
            CompareOp::Equal,
            i64::try_from(at).unwrap_or(0),
        );
        let index = app.vip().and_then(|vip| vip::index_of(&self.ranges, vip));
        let mut operations = vec![TxnOp::delete(path.as_str(), None)];
        operations.extend(index.map(|index| TxnOp::delete(path_of(index), None)));
        operations.extend(history::deletions(&self.client, app).await?);
        let txn = Txn::new()
            .when(self.client.conditions(exists))
            .and_then(operations);
        let reply = self.client.txn(txn).await?;
        if !reply.succeeded() {
            return Err(ClientError::Conflict { path }.into());
        }
        if let Some(index) = index {
            self.cache(index, false).await;
        }
        Ok(revision_of(&reply))
    }

    /// The app that has claimed `index`.
    pub async fn owner(&self, index: VipIndex) -> Result<Option<Key>, ClientError> {
        let (kvs, _revision) = self.client.range(&path_of(index), 0).await?;
        let text = kvs
            .first()
            .map(|kv| String::from_utf8_lossy(kv.value()).into_owned());
        Ok(text.and_then(|text| {
            text.split_once('/')
                .map(|(namespace, name)| Key::new(namespace, name))
        }))
    }

    async fn choose(
        &self,
        requested: Option<Ipv6Addr>,
    ) -> Result<(Ipv6Addr, VipIndex), ClaimError> {
        if let Some(vip) = requested {
            let outside = || ClaimError::Outside {
                vip,
                ranges: self.names(),
            };
            return Ok((vip, vip::index_of(&self.ranges, vip).ok_or_else(outside)?));
        }
        let mut claimed = self.claimed.lock().await;
        if claimed.is_none() {
            *claimed = Some(self.list().await?);
        }
        let index = vip::lowest_free(&self.ranges, claimed.as_deref().unwrap_or_default());
        if index.is_none() {
            // The next create reads the claims again: other processes may have deleted some.
            *claimed = None;
        }
        let found = index.and_then(|index| Some((vip::address_of(&self.ranges, index)?, index)));
        found.ok_or_else(|| ClaimError::Exhausted(self.names()))
    }

    async fn attempt(&self, app: &App, index: VipIndex) -> Result<Attempt, ClientError> {
        let key = app.key();
        let (path, claim) = (App::path(&key), path_of(index));
        let absent = |path: &str| Compare::create_revision(path, CompareOp::Equal, 0);
        let mut conditions = self.client.conditions(absent(&path));
        conditions.push(absent(&claim));
        let txn = Txn::new()
            .when(conditions)
            .and_then([
                TxnOp::put(path.as_str(), encode(app)?, None),
                TxnOp::put(claim.as_str(), key.to_string(), None),
            ])
            .or_else([TxnOp::get(claim.as_str(), None)]);
        let reply = self.client.txn(txn).await?;
        if reply.succeeded() {
            return Ok(Attempt::Created(revision_of(&reply)));
        }
        let owner = match reply.op_responses().first() {
            Some(etcd_client::TxnOpResponse::Get(found)) => found
                .kvs()
                .first()
                .map(|kv| String::from_utf8_lossy(kv.value()).into_owned()),
            _ => None,
        };
        Ok(match owner {
            Some(owner) if owner != key.to_string() => Attempt::ClaimedBy(owner),
            _ => Attempt::AppExists,
        })
    }

    /// All claimed indexes in the store, sorted.
    async fn list(&self) -> Result<Vec<VipIndex>, ClientError> {
        let (kvs, _revision) = self.client.range(PREFIX, 0).await?;
        Ok(kvs.iter().filter_map(|kv| parse_path(kv.key())).collect())
    }

    /// Updates the cache of claimed indexes.
    async fn cache(&self, index: VipIndex, is_claimed: bool) {
        if let Some(claimed) = self.claimed.lock().await.as_mut() {
            match (claimed.binary_search(&index), is_claimed) {
                (Err(at), true) => claimed.insert(at, index),
                (Ok(at), false) => drop(claimed.remove(at)),
                _ => {}
            }
        }
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}

fn path_of(index: VipIndex) -> String {
    format!("{PREFIX}{:08x}", index.0)
}

fn parse_path(path: &[u8]) -> Option<VipIndex> {
    let digits = std::str::from_utf8(path).ok()?.strip_prefix(PREFIX)?;
    u32::from_str_radix(digits, 16).ok().map(VipIndex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_claim_is_parsed_back_to_its_index() {
        assert_eq!(
            path_of(VipIndex(0x1f3a)),
            "/registry/dormouse.dev/vips/00001f3a"
        );
        assert_eq!(
            parse_path(path_of(VipIndex(0x1f3a)).as_bytes()),
            Some(VipIndex(0x1f3a))
        );
        assert_eq!(parse_path(b"/registry/dormouse.dev/vips/zz"), None);
    }
}

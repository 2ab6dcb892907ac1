//! Who owns which VIP: a claim is written in the same transaction as its app, so two apps never own one.

use std::net::Ipv6Addr;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::sync::Mutex;

use crate::{
    App, Client, ClientError, Guard, Key, Object, VipIndex, VipRange,
    client::{encode, revision_of},
    vip,
};

/// Start of every claim's key; the index follows as eight hexadecimal digits, so keys sort as numbers.
pub const PREFIX: &str = "/registry/dormouse.dev/vips/";
/// A create that keeps losing against other creates is given up after this many rounds.
const ROUNDS_MAX: u32 = 32;

/// Creates and deletes apps together with their VIP claims.
pub struct Claims {
    client: Client,
    ranges: Vec<VipRange>,
    /// Sorted indexes known to be claimed: where to look for a free one. The store's transaction alone
    /// decides, so a stale set costs a round, never a double claim.
    taken: Mutex<Option<Vec<VipIndex>>>,
}

/// Why an app could not be created or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another app owns the VIP.
    #[error("VIP {vip} belongs to app {owner}")]
    Taken {
        /// The asked address.
        vip: Ipv6Addr,
        /// Who has it, as `namespace/name`.
        owner: String,
    },
    /// Every address of every range is claimed.
    #[error("no VIP left in {0}")]
    Exhausted(String),
    /// The address lies in none of the cluster's ranges.
    #[error("VIP {vip} lies outside {ranges}")]
    Outside {
        /// The asked address.
        vip: Ipv6Addr,
        /// The cluster's ranges.
        ranges: String,
    },
    /// The store failed, or the app exists already.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// What became of one attempt to create an app.
enum Attempt {
    Created(u64),
    AppExists,
    ClaimedBy(String),
}

impl Claims {
    /// Claims out of `ranges`.
    pub fn new(client: Client, ranges: Vec<VipRange>) -> Self {
        Self {
            client,
            ranges,
            taken: Mutex::new(None),
        }
    }

    /// The cluster's VIP ranges.
    pub fn ranges(&self) -> &[VipRange] {
        &self.ranges
    }

    /// Creates an app with the VIP that it asks for, or with the lowest free one; `spec.vip` of the
    /// returned app is set.
    pub async fn create(&self, mut app: App) -> Result<App, ClaimError> {
        let asked = app.spec.vip;
        for _ in 0..ROUNDS_MAX {
            let (vip, index) = self.choose(asked).await?;
            app.spec.vip = Some(vip);
            app.status.get_or_insert_default().vip = Some(vip);
            match self.attempt(&app, index).await? {
                Attempt::Created(revision) => {
                    self.note(index, true).await;
                    app.metadata.resource_version = Some(revision.to_string());
                    return Ok(app);
                }
                Attempt::AppExists => {
                    return Err(ClientError::AlreadyExists {
                        path: App::path(&app.key()),
                    }
                    .into());
                }
                Attempt::ClaimedBy(owner) if asked.is_some() => {
                    return Err(ClaimError::Taken { vip, owner });
                }
                Attempt::ClaimedBy(_) => self.note(index, true).await,
            }
        }
        Err(ClientError::Conflict {
            path: App::path(&app.key()),
        }
        .into())
    }

    /// Deletes an app if `guard` holds, and frees its VIP in the same transaction.
    pub async fn delete(&self, app: &App, guard: &Guard) -> Result<u64, ClaimError> {
        let path = App::path(&app.key());
        let at = guard.revision.unwrap_or_else(|| app.revision());
        let exists = Compare::mod_revision(
            path.as_str(),
            CompareOp::Equal,
            i64::try_from(at).unwrap_or(0),
        );
        let mut conditions = guard.compares.clone();
        conditions.push(exists);
        let index = app.vip().and_then(|vip| vip::index_of(&self.ranges, vip));
        let mut operations = vec![TxnOp::delete(path.as_str(), None)];
        operations.extend(index.map(|index| TxnOp::delete(path_of(index), None)));
        let txn = Txn::new().when(conditions).and_then(operations);
        let reply = self.client.txn(txn).await?;
        if !reply.succeeded() {
            return Err(ClientError::Conflict { path }.into());
        }
        if let Some(index) = index {
            self.note(index, false).await;
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

    async fn choose(&self, asked: Option<Ipv6Addr>) -> Result<(Ipv6Addr, VipIndex), ClaimError> {
        if let Some(vip) = asked {
            let outside = || ClaimError::Outside {
                vip,
                ranges: self.names(),
            };
            return Ok((vip, vip::index_of(&self.ranges, vip).ok_or_else(outside)?));
        }
        let mut taken = self.taken.lock().await;
        if taken.is_none() {
            *taken = Some(self.claimed().await?);
        }
        let index = vip::lowest_free(&self.ranges, taken.as_deref().unwrap_or_default());
        if index.is_none() {
            // Claims freed by others show up only when the set is read again.
            *taken = None;
        }
        let found = index.and_then(|index| Some((vip::address_of(&self.ranges, index)?, index)));
        found.ok_or_else(|| ClaimError::Exhausted(self.names()))
    }

    async fn attempt(&self, app: &App, index: VipIndex) -> Result<Attempt, ClientError> {
        let key = app.key();
        let (path, claim) = (App::path(&key), path_of(index));
        let txn = Txn::new()
            .when([
                Compare::create_revision(path.as_str(), CompareOp::Equal, 0),
                Compare::create_revision(claim.as_str(), CompareOp::Equal, 0),
            ])
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

    /// All claimed indexes in the store, sorted as their keys are.
    async fn claimed(&self) -> Result<Vec<VipIndex>, ClientError> {
        let (kvs, _revision) = self.client.range(PREFIX, 0).await?;
        Ok(kvs.iter().filter_map(|kv| parse_path(kv.key())).collect())
    }

    async fn note(&self, index: VipIndex, claimed: bool) {
        if let Some(taken) = self.taken.lock().await.as_mut() {
            match (taken.binary_search(&index), claimed) {
                (Err(at), true) => taken.insert(at, index),
                (Ok(at), false) => drop(taken.remove(at)),
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
    fn a_claims_key_reads_back_as_its_index() {
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

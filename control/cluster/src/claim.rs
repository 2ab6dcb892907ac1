//! VIP claims: a key per allocated VIP, written in the same transaction as its app, so that no two
//! apps have the same VIP.

use std::net::Ipv6Addr;
use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use crate::{
    App, Client, ClientError, Guard, Key, Object, VipIndex, VipRange,
    client::{encode, revision_of},
    history, vip,
    vip::pool::Pool,
};

/// Prefix of the claims' keys. The VIP index follows as eight hexadecimal digits, so keys sort by index.
pub const PREFIX: &str = "/registry/dormouse.dev/vips/";
/// The key, beside the claims, of the VIP index that was given last: after a restart the one after it is given.
const LAST: &str = "/registry/dormouse.dev/vips/last";
/// Attempts of a create whose allocated VIP is claimed by concurrent creates.
const ATTEMPTS_MAX: u32 = 32;

/// Creates and deletes apps together with their VIP claims. Clones give VIPs from one pool, so that one frees what the other must not
/// give at once.
#[derive(Clone)]
pub struct Claims {
    client: Client,
    vips: Arc<Vips>,
}

struct Vips {
    ranges: Vec<VipRange>,
    /// `None` before the first use. The store's transaction decides, so what another process has written costs an attempt, never a
    /// double claim.
    pool: Mutex<Option<Pool>>,
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
    Created,
    AppExists,
    ClaimedBy(String),
}

impl Claims {
    /// Claims of VIPs in `ranges`.
    pub fn new(client: Client, ranges: Vec<VipRange>) -> Self {
        let pool = Mutex::default();
        let vips = Arc::new(Vips { ranges, pool });
        Self { client, vips }
    }

    /// The same claims, written by another client of the store.
    #[must_use]
    pub fn written_by(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// The cluster's VIP ranges.
    pub fn ranges(&self) -> &[VipRange] {
        &self.vips.ranges
    }

    /// Creates an app with the VIP of its spec, or with the free one that no app has had for the longest time; `spec.vip` of the
    /// returned app is set.
    pub async fn create(&self, app: App) -> Result<App, ClaimError> {
        match app.spec.vip {
            Some(vip) => Box::pin(self.create_at(app, vip)).await,
            None => Box::pin(self.create_anywhere(app)).await,
        }
    }

    async fn create_at(&self, mut app: App, vip: Ipv6Addr) -> Result<App, ClaimError> {
        let outside = || ClaimError::Outside {
            vip,
            ranges: self.names(),
        };
        let index = vip::index_of(self.ranges(), vip).ok_or_else(outside)?;
        match self.attempt(&mut app, (vip, index), None).await? {
            Attempt::Created => {
                if let Some(pool) = self.vips.pool.lock().await.as_mut() {
                    pool.claim(index);
                }
                Ok(app)
            }
            Attempt::AppExists => Err(exists(&app)),
            Attempt::ClaimedBy(owner) => Err(ClaimError::Taken { vip, owner }),
        }
    }

    async fn create_anywhere(&self, mut app: App) -> Result<App, ClaimError> {
        for _ in 0..ATTEMPTS_MAX {
            let (vip, index) = self.draw().await?;
            let last = TxnOp::put(LAST, digits(index), None);
            // The outcome of an attempt that fails may be unknown: its VIP stays out of the pool until all claims are read again.
            match self.attempt(&mut app, (vip, index), Some(last)).await? {
                Attempt::Created => return Ok(app),
                Attempt::AppExists => {
                    self.pool().await?.put_back(index);
                    return Err(exists(&app));
                }
                // By another process, or by a manifest.
                Attempt::ClaimedBy(_) => {}
            }
        }
        let path = App::path(&app.key());
        Err(ClientError::Conflict { path }.into())
    }

    /// Deletes an app if `guard` holds, and its claim and revisions in the same transaction. Of a child: if `parent` is still as it was
    /// read, too.
    pub async fn delete(
        &self,
        app: &App,
        guard: &Guard,
        parent: Option<&App>,
    ) -> Result<u64, ClaimError> {
        let path = App::path(&app.key());
        let is_at = |path: &str, revision: u64| {
            let revision = i64::try_from(revision).unwrap_or(0);
            Compare::mod_revision(path, CompareOp::Equal, revision)
        };
        let at = guard.revision.unwrap_or_else(|| app.revision());
        let mut conditions = self.client.conditions(is_at(&path, at));
        conditions.extend(parent.map(|parent| is_at(&App::path(&parent.key()), parent.revision())));
        let index = app.vip().and_then(|vip| vip::index_of(self.ranges(), vip));
        let mut operations = vec![TxnOp::delete(path.as_str(), None)];
        operations.extend(index.map(|index| TxnOp::delete(path_of(index), None)));
        operations.extend(history::deletions(&self.client, app).await?);
        let txn = Txn::new().when(conditions).and_then(operations);
        let reply = self.client.txn(txn).await?;
        if !reply.succeeded() {
            return Err(ClientError::Conflict { path }.into());
        }
        // The app is deleted, also if its VIP is found free only when all claims are read again.
        if let (Some(index), Ok(mut pool)) = (index, self.pool().await) {
            pool.free(self.ranges(), index);
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

    /// The next VIP of the pool.
    async fn draw(&self) -> Result<(Ipv6Addr, VipIndex), ClaimError> {
        let ranges = self.ranges();
        let mut pool = self.pool().await?;
        let mut drawn = pool.draw(ranges);
        if drawn.is_none() {
            // Other processes may have deleted apps.
            *pool = self.list().await?;
            drawn = pool.draw(ranges);
        }
        let found = drawn.and_then(|index| Some((vip::address_of(ranges, index)?, index)));
        found.ok_or_else(|| ClaimError::Exhausted(self.names()))
    }

    /// Creates `app` with this VIP if neither is there, and writes `more` with it.
    async fn attempt(
        &self,
        app: &mut App,
        (vip, index): (Ipv6Addr, VipIndex),
        more: Option<TxnOp>,
    ) -> Result<Attempt, ClientError> {
        app.spec.vip = Some(vip);
        app.status.get_or_insert_default().vip = Some(vip);
        let key = app.key();
        let (path, claim) = (App::path(&key), path_of(index));
        let absent = |path: &str| Compare::create_revision(path, CompareOp::Equal, 0);
        let mut conditions = self.client.conditions(absent(&path));
        conditions.push(absent(&claim));
        let mut puts = vec![
            TxnOp::put(path.as_str(), encode(app)?, None),
            TxnOp::put(claim.as_str(), key.to_string(), None),
        ];
        puts.extend(more);
        let txn = Txn::new()
            .when(conditions)
            .and_then(puts)
            .or_else([TxnOp::get(claim.as_str(), None)]);
        let reply = self.client.txn(txn).await?;
        if reply.succeeded() {
            app.metadata.resource_version = Some(revision_of(&reply).to_string());
            return Ok(Attempt::Created);
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

    /// The pool, which is read from the store at its first use.
    async fn pool(&self) -> Result<MappedMutexGuard<'_, Pool>, ClientError> {
        let mut pool = self.vips.pool.lock().await;
        if pool.is_none() {
            *pool = Some(self.list().await?);
        }
        Ok(MutexGuard::map(pool, Option::get_or_insert_default))
    }

    /// The pool without the claims in the store.
    async fn list(&self) -> Result<Pool, ClientError> {
        let (kvs, _revision) = self.client.range(PREFIX, 0).await?;
        let last = kvs.iter().find(|kv| kv.key() == LAST.as_bytes());
        let last = last.and_then(|kv| parse(std::str::from_utf8(kv.value()).ok()?));
        let claimed = kvs.iter().filter_map(|kv| parse_path(kv.key())).collect();
        Ok(Pool::new(claimed, last))
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.ranges().iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}

fn exists(app: &App) -> ClaimError {
    let path = App::path(&app.key());
    ClientError::AlreadyExists { path }.into()
}

fn path_of(index: VipIndex) -> String {
    format!("{PREFIX}{}", digits(index))
}

fn parse_path(path: &[u8]) -> Option<VipIndex> {
    parse(std::str::from_utf8(path).ok()?.strip_prefix(PREFIX)?)
}

fn digits(index: VipIndex) -> String {
    format!("{:08x}", index.0)
}

fn parse(digits: &str) -> Option<VipIndex> {
    u32::from_str_radix(digits, 16).ok().map(VipIndex)
}

#[cfg(test)]
mod tests;

//! The epoch of control: only the control with the highest one may remove pods.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_cluster::{Client, ClientError, random_uid};
use dormouse_fleet::lease::Terms;
use dormouse_fleet::node::Epoch;
use dormouse_fleet::{Boottime, Handle as Fleet};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::time::{MissedTickBehavior, timeout};

/// The key that holds the newest control's epoch, as decimal text.
pub const EPOCH_KEY: &str = "/registry/dormouse.dev/fleet/epoch";

/// The key that holds the identifier of the cluster, which is as old as its store: by it a node knows whether two epochs can be
/// compared.
const CLUSTER_KEY: &str = "/registry/dormouse.dev/fleet/cluster";

/// Confirmations of the epoch in one lease; one is valid for a third of it.
const CONFIRMATIONS: u32 = 9;
/// Longest interval of the confirmations, in which a control learns that another one has taken over.
const CONFIRM_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Errors of taking an epoch.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] ClientError),
    /// The kernel gave no random identifier for a new cluster.
    #[error("cannot read /proc/sys/kernel/random/uuid")]
    Random(#[from] io::Error),
}

/// Takes the next epoch. It increases with every start; it is at least the wall clock's, so also if the store is empty.
pub async fn take(client: &Client) -> Result<Epoch, TakeError> {
    let cluster = cluster(client).await?;
    loop {
        let (last, written) = current(client).await?;
        let number = now_ms().max(last + 1);
        let txn = Txn::new()
            .when([Compare::mod_revision(EPOCH_KEY, CompareOp::Equal, written)])
            .and_then([TxnOp::put(EPOCH_KEY, number.to_string(), None)]);
        if client.txn(txn).await?.succeeded() {
            return Ok(Epoch { cluster, number });
        }
    }
}

/// The identifier of the cluster. The first control of a store writes it.
async fn cluster(client: &Client) -> Result<String, TakeError> {
    loop {
        let (found, _) = client.range(CLUSTER_KEY, 0).await?;
        if let Some(kv) = found.iter().find(|kv| kv.key() == CLUSTER_KEY.as_bytes()) {
            return Ok(String::from_utf8_lossy(kv.value()).into_owned());
        }
        let txn = Txn::new()
            .when([Compare::mod_revision(CLUSTER_KEY, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(CLUSTER_KEY, random_uid()?, None)]);
        client.txn(txn).await?;
    }
}

/// A condition of transactions: no other control has taken a newer epoch.
pub fn is_current(epoch: u64) -> Compare {
    Compare::value(EPOCH_KEY, CompareOp::Equal, epoch.to_string())
}

/// Confirms the epoch in the store, and passes the time of each confirmation on to the fleet: without one, nodes are sent nothing.
/// Resolves when the store has another epoch, and returns it: from then on another control removes pods.
pub async fn hold(client: &Client, epoch: u64, lease: Duration, fleet: &Fleet) -> u64 {
    let mut times = tokio::time::interval((lease / CONFIRMATIONS).min(CONFIRM_INTERVAL_MAX));
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        times.tick().await;
        let sent = Boottime::now();
        // A later response would confirm nothing.
        let read = timeout(Terms { lease }.confirmed(), current(client)).await;
        let failed = match read {
            Ok(Ok((found, _))) if found != epoch => return found,
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_elapsed) => Some("no response".to_owned()),
        };
        match &failed {
            Some(error) if !failing => tracing::warn!(
                error,
                "the store does not confirm the epoch: nodes get no leases meanwhile, and use the activators when theirs end"
            ),
            None if failing => tracing::info!("the store confirms the epoch again"),
            _ => {}
        }
        if failed.is_none() {
            fleet.confirmed(sent);
        }
        failing = failed.is_some();
    }
}

/// The newest control's epoch, and the revision of its write; 0 without one. The read is linearizable, also in a cluster of etcd.
async fn current(client: &Client) -> Result<(u64, i64), ClientError> {
    let (found, _) = client.range(EPOCH_KEY, 0).await?;
    let found = found.iter().find(|kv| kv.key() == EPOCH_KEY.as_bytes());
    Ok(found.map_or((0, 0), |kv| (parse(kv.value()), kv.mod_revision())))
}

fn parse(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

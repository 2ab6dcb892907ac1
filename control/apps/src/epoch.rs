//! The epoch of control: only the control with the highest one may remove pods.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_cluster::client::{KeyRange, Previous};
use dormouse_cluster::{Client, ClientError};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures::StreamExt;

/// The key that holds the newest control's epoch, as decimal text.
pub const EPOCH_KEY: &str = "/registry/dormouse.dev/fleet/epoch";

/// Wait before a failed watch of the epoch is resumed.
const RETRY: Duration = Duration::from_secs(1);

/// Takes the next epoch. It increases with every start; it is at least the wall clock's, so also if the store is empty.
pub async fn take(client: &Client) -> Result<u64, ClientError> {
    loop {
        let (found, _) = client.range(EPOCH_KEY, 0).await?;
        let before = found.iter().find(|kv| kv.key() == EPOCH_KEY.as_bytes());
        let (last, written) = before.map_or((0, 0), |kv| (parse(kv.value()), kv.mod_revision()));
        let epoch = now_ms().max(last + 1);
        let txn = Txn::new()
            .when([Compare::mod_revision(EPOCH_KEY, CompareOp::Equal, written)])
            .and_then([TxnOp::put(EPOCH_KEY, epoch.to_string(), None)]);
        if client.txn(txn).await?.succeeded() {
            return Ok(epoch);
        }
    }
}

/// A condition of transactions: no other control has taken a newer epoch.
pub fn is_current(epoch: u64) -> Compare {
    Compare::value(EPOCH_KEY, CompareOp::Equal, epoch.to_string())
}

/// Resolves when the store has another epoch than this control's, and returns it: from then on another control removes
/// pods.
pub async fn lost(client: &Client, epoch: u64) -> u64 {
    loop {
        match other(client, epoch).await {
            Ok(other) => return other,
            Err(error) => tracing::debug!(%error, "the watch of the epoch failed, resuming it"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn other(client: &Client, epoch: u64) -> Result<u64, ClientError> {
    let (found, revision) = client.range(EPOCH_KEY, 0).await?;
    let found = found.iter().find(|kv| kv.key() == EPOCH_KEY.as_bytes());
    let found = found.map_or(0, |kv| parse(kv.value()));
    if found != epoch {
        return Ok(found);
    }
    let range = KeyRange::of_prefix(EPOCH_KEY);
    let mut watch = pin!(client.watch(&range, revision, Previous::LeftOut).await?);
    while let Some(events) = watch.next().await {
        for event in events? {
            let found = event.value.as_deref().map_or(0, parse);
            if event.path == EPOCH_KEY.as_bytes() && found != epoch {
                return Ok(found);
            }
        }
    }
    Err(ClientError::Timeout {
        after: Duration::ZERO,
    })
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

//! The epoch of control: only the control with the highest one may remove pods.

use std::time::{SystemTime, UNIX_EPOCH};

use dormouse_cluster::{Client, ClientError};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};

/// The key that holds the newest control's epoch, as decimal text.
pub const EPOCH_KEY: &str = "/registry/dormouse.dev/fleet/epoch";

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

//! Lets the store forget old revisions, as kube-apiserver does for etcd: whoever watches has long read them.

use std::time::Duration;

use dormouse_store::Store;
use tokio_util::sync::CancellationToken;

/// Revisions older than one to two of these are forgotten (kube-apiserver's `--etcd-compaction-interval`).
const EVERY: Duration = Duration::from_mins(5);

/// Compacts `store` until `shutdown`, each time to where it was one interval ago.
pub(super) async fn run(store: Store, shutdown: CancellationToken) {
    let mut before = store.revision();
    let forget = async {
        loop {
            tokio::time::sleep(EVERY).await;
            let now = store.revision();
            if let Err(error) = store.compact(before) {
                tracing::debug!(%error, "nothing to forget");
            }
            before = now;
        }
    };
    shutdown.run_until_cancelled(forget).await;
}

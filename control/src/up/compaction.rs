//! Periodic compaction of the store, as kube-apiserver does it for etcd.

use std::time::Duration;

use dormouse_store::Store;
use tokio_util::sync::CancellationToken;

/// Compaction interval; the default of kube-apiserver's `--etcd-compaction-interval`.
const INTERVAL: Duration = Duration::from_mins(5);

/// Compacts `store` until `shutdown`, each time at its revision of one interval ago.
pub(super) async fn run(store: Store, shutdown: CancellationToken) {
    let mut previous = store.revision();
    let compactions = async {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let current = store.revision();
            if let Err(error) = store.compact(previous, false).await {
                tracing::debug!(%error, "nothing to compact");
            }
            previous = current;
        }
    };
    shutdown.run_until_cancelled(compactions).await;
}

//! The activator's main loop and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::accept::accept;
use crate::handle::Handle;
use crate::shared::Shared;

/// Interval of retries for ports on which another process listens.
const PORT_RETRY: Duration = Duration::from_secs(1);

/// Accepts connections until `shutdown`, then drains: no new connections, each open one closed after its response, and
/// those still open after the drain timeout aborted.
pub async fn run(handle: Handle, shutdown: CancellationToken) {
    let shared = handle.shared;
    let mut retries = interval(PORT_RETRY);
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let retry = tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.ports.opened.notified() => false,
            _ = retries.tick() => true,
        };
        for opened in shared.ports.take_opened(retry) {
            shared.tracker.spawn(accept(Arc::clone(&shared), opened));
        }
    }
    drain(&shared).await;
}

async fn drain(shared: &Shared) {
    shared.draining.cancel();
    shared.tracker.close();
    let limit = shared.core.config.drain_timeout;
    if timeout(limit, shared.tracker.wait()).await.is_err() {
        warn!(
            left = shared.tracker.len(),
            "drain timeout passed, aborting connections"
        );
        shared.aborted.cancel();
    }
}

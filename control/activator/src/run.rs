//! The activator's life: accepts on the ports of its apps, and at the end lets everybody finish.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::handle::{Handle, Shared};
use crate::listen::accept;

/// A port that something else listens on is tried again after this.
const PORTS_AGAIN: Duration = Duration::from_secs(1);

/// Accepts connections until `shutdown`, then drains: no new connection, each one closed after its
/// response, what still runs after the configured time broken off.
pub async fn run(handle: Handle, shutdown: CancellationToken) {
    let shared = handle.shared;
    let mut again = interval(PORTS_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let retry = tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.ports.opened.notified() => false,
            _ = again.tick() => true,
        };
        for (port, listener, closed) in shared.ports.take_opened(retry) {
            shared
                .tracker
                .spawn(accept(Arc::clone(&shared), port, listener, closed));
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
            "draining took too long, breaking connections off"
        );
        shared.broken_off.cancel();
    }
}

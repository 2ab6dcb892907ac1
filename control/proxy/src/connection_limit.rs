//! The limit of connections to all backends together: each takes a file descriptor that other parts of the process need.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit of connections that backends share; cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    permits: Arc<Semaphore>,
    max: usize,
}

impl ConnectionLimit {
    /// A limit of `max` connections.
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(max)),
            max,
        }
    }

    /// The claim of one connection until the result is dropped; `None` at the limit.
    pub(crate) fn claim(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Whether less than a quarter is left: then idle connections are closed.
    pub(crate) fn is_scarce(&self) -> bool {
        self.permits.available_permits().saturating_mul(4) < self.max
    }
}

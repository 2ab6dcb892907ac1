//! The activator's state: its apps by VIP index, their ports, and its connections.

use std::collections::HashMap;
use std::sync::Arc;

use dormouse_fleet::clock::Boottime;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Core};
use crate::ports::Ports;

pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) ports: Ports,
    /// Permits for client connections.
    pub(crate) connections: Arc<Semaphore>,
    /// All connections and exchanges, upgraded ones included.
    pub(crate) tracker: TaskTracker,
    /// Cancelled at shutdown: connections end after their current responses.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the drain timeout has passed: connections are closed.
    pub(crate) aborted: CancellationToken,
    /// By VIP index.
    pub(crate) apps: RwLock<HashMap<u32, Arc<App>>>,
    /// Time of the last [`crate::Handle::take_stats`].
    pub(crate) stats_taken: Mutex<Boottime>,
}

impl Shared {
    pub(crate) fn app(&self, vip: u32) -> Option<Arc<App>> {
        self.apps.read().get(&vip).cloned()
    }
}

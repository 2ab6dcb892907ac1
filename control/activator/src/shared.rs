//! The activator's state: its apps by VIP index, their ports, and its connections.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dormouse_fleet::clock::Boottime;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Core};
use crate::open_bytes::OpenBytes;
use crate::ports::Ports;

/// Entries that a table of apps keeps allocated when it shrinks.
const SPARE: usize = 1_024;

pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) ports: Ports,
    /// Whether control has sent all ports and the routes of all awake apps; it stays true without control.
    pub(crate) complete: watch::Sender<bool>,
    /// Permits for client connections.
    pub(crate) connections: Arc<Semaphore>,
    /// Their memory.
    pub(crate) open_bytes: Arc<OpenBytes>,
    /// All connections and exchanges, upgraded ones included.
    pub(crate) tracker: TaskTracker,
    /// Cancelled at shutdown: connections end after their current responses.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the drain timeout has passed: connections are closed.
    pub(crate) aborted: CancellationToken,
    pub(crate) apps: RwLock<Apps>,
    /// Time of the last [`crate::Handle::take_stats`].
    pub(crate) stats_taken: Mutex<Boottime>,
}

/// The apps that have backends, and those that a connection or a request uses.
#[derive(Default)]
pub(crate) struct Apps {
    by_vip: HashMap<u32, Arc<App>>,
    /// Apps without backends: forgotten as soon as nothing uses them.
    unbacked: HashSet<u32>,
}

impl Shared {
    /// The app of a VIP; an unknown one gets its route when control has answered.
    pub(crate) fn app(&self, vip: u32) -> Arc<App> {
        if let Some(app) = self.apps.read().get(vip) {
            return app;
        }
        self.apps.write().get_or_insert(vip, &self.core)
    }
}

impl Apps {
    pub(crate) fn get(&self, vip: u32) -> Option<Arc<App>> {
        self.by_vip.get(&vip).cloned()
    }

    pub(crate) fn get_or_insert(&mut self, vip: u32, core: &Arc<Core>) -> Arc<App> {
        let app = self.by_vip.entry(vip).or_insert_with(|| {
            self.unbacked.insert(vip);
            App::new(vip, core)
        });
        Arc::clone(app)
    }

    /// Records whether an app has backends.
    pub(crate) fn set_backed(&mut self, vip: u32, backed: bool) {
        if backed {
            self.unbacked.remove(&vip);
        } else {
            self.unbacked.insert(vip);
        }
    }

    pub(crate) fn remove(&mut self, vip: u32) -> Option<Arc<App>> {
        self.unbacked.remove(&vip);
        self.by_vip.remove(&vip)
    }

    /// Forgets apps without backends that no connection and no request uses. Its cost follows their number, which is
    /// bounded by the connections.
    pub(crate) fn forget_idle(&mut self) {
        let Self { by_vip, unbacked } = self;
        unbacked.retain(|vip| {
            // Others get a reference from this table only, which the caller has locked.
            let used = by_vip
                .get(vip)
                .is_some_and(|app| Arc::strong_count(app) > 1);
            if !used {
                by_vip.remove(vip);
            }
            used
        });
        if by_vip.capacity() / 4 > by_vip.len() + SPARE {
            by_vip.shrink_to(by_vip.len() + SPARE);
            unbacked.shrink_to(by_vip.len() + SPARE);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_vip.len()
    }
}

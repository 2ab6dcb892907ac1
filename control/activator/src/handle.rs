//! How control speaks to the activator: routes in, demands and load out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_fleet::clock::Boottime;
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Core};
use crate::config::{Config, Route};
use crate::listen::Ports;
use crate::metrics::Metrics;
use crate::park::{Budget, Room};

/// A request is parked for an app that has no ready pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The app's VIP index.
    pub vip: u32,
    /// When the request was parked, or when the demand was repeated.
    pub at: Boottime,
}

/// An app's load since it was last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat {
    /// Requests at one time, averaged over the interval; parked ones are included.
    pub concurrency: f64,
    /// Requests that came in the interval.
    pub requests: f64,
    /// Requests parked now.
    pub parked: u32,
    /// Responses that backends have begun, since the app was configured.
    pub answered_total: u64,
}

/// Cheap to clone; every clone speaks to the same activator.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) ports: Ports,
    pub(crate) connections: Arc<Semaphore>,
    /// Every connection and every exchange, upgraded ones included.
    pub(crate) tracker: TaskTracker,
    /// Cancelled at shutdown: finish what runs.
    pub(crate) draining: CancellationToken,
    /// Cancelled when draining took too long.
    pub(crate) broken_off: CancellationToken,
    apps: RwLock<HashMap<u32, Arc<App>>>,
    /// When loads were last taken.
    taken: Mutex<Boottime>,
}

/// An activator without apps, and its demands. It accepts connections once [`crate::run`] runs.
pub fn new(config: Config) -> (Handle, mpsc::Receiver<Demand>) {
    let (demands, demanded) = mpsc::channel(config.demands_max);
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let budget = Budget::new(Room {
        count_max: config.parked_max,
        bytes_max: config.parked_bytes_max,
    });
    let core = Core {
        config,
        metrics: Metrics::default(),
        budget,
        demands,
        active: Mutex::default(),
        tickets: AtomicU64::new(0),
    };
    let shared = Shared {
        core: Arc::new(core),
        ports: Ports::default(),
        connections,
        tracker: TaskTracker::new(),
        draining: CancellationToken::new(),
        broken_off: CancellationToken::new(),
        apps: RwLock::default(),
        taken: Mutex::new(Boottime::now()),
    };
    (
        Handle {
            shared: Arc::new(shared),
        },
        demanded,
    )
}

impl Handle {
    /// Routes an app, or with `None` forgets it: what is parked for it is answered 404.
    ///
    /// When this returns, the kernel takes connections on the route's port (unless something else
    /// listens there: then it is tried again each second).
    pub fn configure(&self, vip: u32, route: Option<Route>) {
        let shared = &self.shared;
        let mut apps = shared.apps.write();
        let port_before = apps.get(&vip).map(|app| app.facts().port);
        let port = route.as_ref().map(|route| route.port);
        if let Some(port) = port.filter(|port| Some(*port) != port_before) {
            shared.ports.hold(port);
        }
        let removed = match route {
            None => apps.remove(&vip),
            Some(route) => {
                if let Some(app) = apps.get(&vip).cloned() {
                    drop(apps);
                    app.configure(route);
                } else {
                    apps.insert(vip, App::new(vip, route, &shared.core));
                }
                None
            }
        };
        if let Some(app) = removed {
            app.remove();
        }
        if let Some(before) = port_before.filter(|before| Some(*before) != port) {
            shared.ports.release(before);
        }
    }

    /// With `direct`, clients are asked to reconnect, for then they reach the pods:
    /// `Connection: close` on the next response, GOAWAY on HTTP/2. No idle connection is cut.
    pub fn serving(&self, vip: u32, direct: bool) {
        if let Some(app) = self.shared.app(vip) {
            let before = app.direct.swap(direct, Ordering::AcqRel);
            if direct && !before {
                app.turned.notify_waiters();
            }
        }
    }

    /// The load of each app that had any since the last call; an app not named had none.
    pub fn take_stats(&self) -> Vec<(u32, Stat)> {
        let now = Boottime::now();
        let since = std::mem::replace(&mut *self.shared.taken.lock(), now);
        let active = std::mem::take(&mut *self.shared.core.active.lock());
        let mut stats = Vec::with_capacity(active.len());
        for listed in active {
            let Some(app) = listed.upgrade() else {
                continue;
            };
            let (stat, still_active) = app.take_stat(since, now);
            stats.push((app.vip, stat));
            if still_active {
                self.shared.core.active.lock().push(listed);
            }
        }
        stats
    }

    /// When the first response after the last wake's [`Demand`] was given to its client.
    pub fn first_byte(&self, vip: u32) -> Option<Boottime> {
        self.shared.app(vip)?.first_byte()
    }

    /// Adds the activator's metrics to those of the process.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.core.metrics.register(registry);
    }
}

impl Shared {
    pub(crate) fn app(&self, vip: u32) -> Option<Arc<App>> {
        self.apps.read().get(&vip).cloned()
    }
}

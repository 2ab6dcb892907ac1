//! The activator's interface for control: routes in, demands and load out.

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
use crate::metrics::Metrics;
use crate::park::{Budget, QueueLimits};
use crate::ports::Ports;
use crate::report::{Demand, Stat};
use crate::shared::Shared;

/// A running activator; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

/// An activator without apps, and its demands. [`crate::run`] accepts connections.
pub fn new(config: Config) -> (Handle, mpsc::Receiver<Demand>) {
    let (demands, receiver) = mpsc::channel(config.demands_max);
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let budget = Budget::new(QueueLimits {
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
        aborted: CancellationToken::new(),
        apps: RwLock::default(),
        stats_taken: Mutex::new(Boottime::now()),
    };
    (
        Handle {
            shared: Arc::new(shared),
        },
        receiver,
    )
}

impl Handle {
    /// Sets an app's route, or removes the app with `None`: its parked requests are answered 404.
    ///
    /// When this returns, the kernel accepts connections on the route's port. If another process listens there, the
    /// activator retries every second.
    pub fn configure(&self, vip: u32, route: Option<Route>) {
        let shared = &self.shared;
        let mut apps = shared.apps.write();
        let port_before = apps.get(&vip).map(|app| app.route().port);
        let port = route.as_ref().map(|route| route.port);
        if let Some(port) = port.filter(|port| Some(*port) != port_before) {
            shared.ports.open(port);
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
            shared.ports.close(before);
        }
    }

    /// Sets whether an app is in serve mode. If so, clients are asked to reconnect, which connects them directly to
    /// pods: by `Connection: close` on the next response, or by GOAWAY on HTTP/2. Idle connections stay open.
    pub fn set_serving(&self, vip: u32, serving: bool) {
        if let Some(app) = self.shared.app(vip) {
            let before = app.serving.swap(serving, Ordering::AcqRel);
            if serving && !before {
                app.serving_begun.notify_waiters();
            }
        }
    }

    /// The load of each app since the previous call. Apps without any load are left out.
    pub fn take_stats(&self) -> Vec<(u32, Stat)> {
        let now = Boottime::now();
        let since = std::mem::replace(&mut *self.shared.stats_taken.lock(), now);
        let active = std::mem::take(&mut *self.shared.core.active.lock());
        let mut stats = Vec::with_capacity(active.len());
        for listed in active {
            let Some(app) = listed.upgrade() else {
                continue;
            };
            let (stat, is_active) = app.take_stat(since, now);
            stats.push((app.vip, stat));
            if is_active {
                self.shared.core.active.lock().push(listed);
            }
        }
        stats
    }

    /// Time of the first response after the last wake's [`Demand`].
    pub fn first_byte(&self, vip: u32) -> Option<Boottime> {
        self.shared.app(vip)?.first_byte()
    }

    /// Adds the activator's metrics to those of the process.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.core.metrics.register(registry);
    }
}

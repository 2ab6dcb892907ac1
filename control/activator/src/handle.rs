//! The activator's interface for its link to control: routes in, reports and load out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::ConnectionLimit;
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::Core;
use crate::config::{Config, Route};
use crate::metrics::Metrics;
use crate::open_bytes::OpenBytes;
use crate::park::{Budget, QueueLimits};
use crate::ports::Ports;
use crate::report::{Report, Stat};
use crate::shared::{Apps, Shared};

/// A running activator; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

/// An activator without apps, and its reports. [`crate::run`] accepts connections.
pub fn new(config: Config) -> (Handle, mpsc::Receiver<Report>) {
    let (reports, receiver) = mpsc::channel(config.reports_max);
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let open_bytes = OpenBytes::new(config.connection_bytes_max);
    let ports = Ports::new(config.ports_max);
    let budget = Budget::new(QueueLimits {
        count_max: config.parked_max,
        bytes_max: config.parked_bytes_max,
    });
    let core = Core {
        connections: ConnectionLimit::new(config.backend_connections_max),
        config,
        metrics: Metrics::default(),
        budget,
        reports,
        active: Mutex::default(),
        tickets: AtomicU64::new(0),
    };
    let shared = Shared {
        core: Arc::new(core),
        ports,
        complete: watch::Sender::new(false),
        connections,
        open_bytes,
        tracker: TaskTracker::new(),
        draining: CancellationToken::new(),
        aborted: CancellationToken::new(),
        apps: RwLock::new(Apps::default()),
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
    /// Sets an app's route. Without backends its requests are parked.
    pub fn configure(&self, vip: u32, route: Route) {
        let mut apps = self.shared.apps.write();
        let app = apps.get_or_insert(vip, &self.shared.core);
        apps.set_backed(vip, route.split.is_some() || !route.backends.is_empty());
        drop(apps);
        app.configure(route);
    }

    /// Takes an app's backends away; its requests are parked until it gets a route with backends.
    pub fn asleep(&self, vip: u32) {
        let mut apps = self.shared.apps.write();
        let Some(app) = apps.get(vip) else {
            return;
        };
        apps.set_backed(vip, false);
        drop(apps);
        app.asleep();
    }

    /// Removes a VIP: its parked requests are answered 404.
    pub fn absent(&self, vip: u32) {
        let removed = self.shared.apps.write().remove(vip);
        if let Some(app) = removed {
            app.remove();
        }
    }

    /// Sets the ports of all apps. When this returns, the kernel accepts connections on them. If another process
    /// listens on one, the activator retries every second.
    pub fn listen(&self, ports: &BTreeSet<u16>) {
        self.shared.ports.set(ports);
    }

    /// Forgets apps without backends that no connection and no request uses; to be called every second.
    pub fn forget_idle(&self) {
        self.shared.apps.write().forget_idle();
    }

    /// The number of apps that the activator knows: those with backends, and those in use.
    pub fn apps(&self) -> usize {
        self.shared.apps.read().len()
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

    /// Control has sent all ports and the routes of all awake apps.
    pub(crate) fn complete(&self) {
        self.shared.complete.send_replace(true);
    }

    /// Waits until the activator listens on the ports of all apps and has the routes of all awake ones. Cancel safe.
    pub async fn ready(&self) {
        let mut complete = self.shared.complete.subscribe();
        // An error is impossible: the sender lives as long as `self`.
        drop(complete.wait_for(|complete| *complete).await);
    }

    /// Why a node must not send new connections here; none: it may. Without control an activator stays ready. A port on
    /// which another process listens is no reason: the other ports serve.
    pub fn unready(&self) -> Option<&'static str> {
        if self.shared.draining.is_cancelled() {
            Some("the activator is draining")
        } else if !*self.shared.complete.borrow() {
            Some("the activator has not got all routes and ports from control yet")
        } else {
            None
        }
    }

    /// Adds the activator's metrics to those of the process.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.core.metrics.register(registry);
    }
}

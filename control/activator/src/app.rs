//! One app behind its lock: its route, line, slots and load, and the demand for its first pod.

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::Backend;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::breaker::Breaker;
use crate::config::{Config, Route};
use crate::handle::{Demand, Stat};
use crate::load::Load;
use crate::metrics::Metrics;
use crate::park::{Budget, Full, Room, Share, Ticket};

/// A demand is repeated after this while requests are parked and no pod is ready.
const DEMAND_AGAIN: Duration = Duration::from_secs(1);
/// A backend that refused a connection is asked last for this long.
const AVOIDED_FOR: Duration = Duration::from_secs(1);

/// What all apps use together; nothing here is locked for longer than a push.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) budget: Arc<Budget>,
    pub(crate) demands: mpsc::Sender<Demand>,
    /// Apps with load since the last take: a sleeping app costs nothing there.
    pub(crate) active: Mutex<Vec<Weak<App>>>,
    pub(crate) tickets: AtomicU64,
}

pub(crate) struct App {
    pub(crate) vip: u32,
    /// The VIP leads straight to pods: who still comes here is asked to reconnect.
    pub(crate) direct: AtomicBool,
    /// Wakes HTTP/2 connections when `direct` becomes true.
    pub(crate) turned: Notify,
    pub(crate) connections: AtomicUsize,
    pub(crate) core: Arc<Core>,
    state: Mutex<State>,
}

struct State {
    facts: Arc<Facts>,
    breaker: Breaker<oneshot::Sender<Grant>>,
    backends: HashMap<SocketAddrV6, Arc<Backend>>,
    load: Load,
    /// Listed in [`Core::active`].
    active: bool,
    answered: u64,
    wake: Wake,
    removed: bool,
}

/// The part of a route that a request needs to know.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) timeout: Duration,
}

#[derive(Default)]
struct Wake {
    /// A task repeats the demand.
    asking: bool,
    awaiting_first_byte: bool,
    first_byte: Option<Boottime>,
}

/// Why there is no slot and will be none.
#[derive(Debug)]
pub(crate) enum NoSlot {
    Full(Full),
    Removed,
}

enum Entered {
    Slot(Grant),
    Parked(Parking),
}

impl App {
    pub(crate) fn new(vip: u32, route: Route, core: &Arc<Core>) -> Arc<Self> {
        let state = State {
            facts: Arc::new(Facts {
                name: String::new(),
                port: route.port,
                timeout: route.timeout,
            }),
            breaker: Breaker::default(),
            backends: HashMap::new(),
            load: Load::default(),
            active: false,
            answered: 0,
            wake: Wake::default(),
            removed: false,
        };
        let app = Arc::new(Self {
            vip,
            direct: AtomicBool::new(false),
            turned: Notify::new(),
            connections: AtomicUsize::new(0),
            core: Arc::clone(core),
            state: Mutex::new(state),
        });
        app.configure(route);
        app
    }

    pub(crate) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.state.lock().facts)
    }

    /// Takes a new route; whoever can go now goes.
    pub(crate) fn configure(self: &Arc<Self>, route: Route) {
        let Route {
            name,
            port,
            container_concurrency,
            timeout,
            backends,
        } = route;
        let mut state = self.state.lock();
        state.facts = Arc::new(Facts {
            name,
            port,
            timeout,
        });
        state.breaker.configure(container_concurrency, &backends);
        state.backends.retain(|address, backend| {
            let stays = backends.contains(address);
            if !stays {
                backend.close();
            }
            stays
        });
        for address in backends {
            let limits = self.core.config.backend;
            state
                .backends
                .entry(address)
                .or_insert_with(|| Backend::new(address, limits));
        }
        // Whoever waited for a slot of the last backend waits for a pod now.
        let first = state.begins_to_demand();
        self.let_out(state);
        if first {
            self.begin_demand();
        }
    }

    /// Answers everybody that the app is gone; what runs may end.
    pub(crate) fn remove(&self) {
        let mut state = self.state.lock();
        state.removed = true;
        state.breaker.configure(0, &[]);
        for (_address, backend) in state.backends.drain() {
            backend.close();
        }
        let dismissed = state.breaker.dismiss();
        drop(state);
        drop(dismissed);
    }

    /// Counts a request in until the visit is dropped.
    pub(crate) fn visit(self: &Arc<Self>) -> Visit {
        let mut state = self.state.lock();
        state.load.enter(Boottime::now());
        if !state.active {
            state.active = true;
            self.core.active.lock().push(Arc::downgrade(self));
        }
        Visit {
            app: Arc::clone(self),
        }
    }

    /// Waits for a slot, parked in line. Dropping the future leaves the line, or gives the slot back.
    pub(crate) async fn slot(
        self: &Arc<Self>,
        ticket: Ticket,
        bytes: usize,
    ) -> Result<Grant, NoSlot> {
        match self.enter(ticket, bytes)? {
            Entered::Slot(grant) => Ok(grant),
            Entered::Parked(mut parking) => parking.granted().await,
        }
    }

    fn enter(self: &Arc<Self>, ticket: Ticket, bytes: usize) -> Result<Entered, NoSlot> {
        let config = &self.core.config;
        let mut state = self.state.lock();
        if state.removed {
            return Err(NoSlot::Removed);
        }
        if let Some(address) = state.breaker.enter(Boottime::now())
            && let Some(backend) = state.backends.get(&address)
        {
            let backend = Arc::clone(backend);
            return Ok(Entered::Slot(Grant {
                app: Arc::clone(self),
                backend,
            }));
        }
        let share = self.core.budget.claim(bytes).map_err(NoSlot::Full)?;
        let (waiter, granted) = oneshot::channel();
        let room = Room {
            count_max: config.queue_per_app_max,
            bytes_max: config.queue_bytes_per_app_max,
        };
        state
            .breaker
            .park(ticket, bytes, waiter, room)
            .map_err(NoSlot::Full)?;
        let first = state.begins_to_demand();
        drop(state);
        if first {
            self.begin_demand();
        }
        Ok(Entered::Parked(Parking::new(
            self, ticket, bytes, granted, share,
        )))
    }

    /// Notes that `address` refused a connection; whether another backend may do better.
    pub(crate) fn avoid(&self, address: SocketAddrV6) -> bool {
        let now = Boottime::now();
        let mut state = self.state.lock();
        state.breaker.avoid(address, now + AVOIDED_FOR);
        state.breaker.has_sound(now)
    }

    /// Notes that a backend's response has begun.
    pub(crate) fn answered(&self) {
        let mut state = self.state.lock();
        state.answered += 1;
        if state.wake.awaiting_first_byte {
            state.wake.awaiting_first_byte = false;
            state.wake.first_byte = Some(Boottime::now());
        }
    }

    pub(crate) fn first_byte(&self) -> Option<Boottime> {
        self.state.lock().wake.first_byte
    }

    /// The load since `since`, and whether the app stays active.
    pub(crate) fn take_stat(&self, since: Boottime, now: Boottime) -> (Stat, bool) {
        let mut state = self.state.lock();
        let average = state.load.take(since, now);
        state.active = !state.load.is_idle();
        let stat = Stat {
            concurrency: average.concurrency,
            requests: average.requests,
            parked: u32::try_from(state.breaker.parked()).unwrap_or(u32::MAX),
            answered_total: state.answered,
        };
        (stat, state.active)
    }

    fn begin_demand(self: &Arc<Self>) {
        self.demand();
        tokio::spawn(demand_again(Arc::downgrade(self)));
    }

    fn demand(&self) {
        let demand = Demand {
            vip: self.vip,
            at: Boottime::now(),
        };
        if let Err(error) = self.core.demands.try_send(demand) {
            warn!(vip = self.vip, %error, "demand not taken");
        }
    }

    /// Demands again when still needed; whether to look once more.
    fn still_demands(&self) -> bool {
        let mut state = self.state.lock();
        let needed = state.breaker.parked() > 0 && !state.breaker.has_backend();
        state.wake.asking = needed;
        drop(state);
        if needed {
            self.demand();
        }
        needed
    }

    fn give_back(self: &Arc<Self>, address: SocketAddrV6) {
        let mut state = self.state.lock();
        state.breaker.leave(address);
        self.let_out(state);
    }

    /// Hands free slots to the line. Grants are sent without the lock: one that nobody takes any more
    /// comes back through [`Grant::drop`].
    fn let_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let now = Boottime::now();
        let mut granted = Vec::new();
        while let Some((waiter, address)) = state.breaker.next(now) {
            if let Some(backend) = state.backends.get(&address) {
                granted.push((waiter, Arc::clone(backend)));
            }
        }
        drop(state);
        for (waiter, backend) in granted {
            drop(waiter.send(Grant {
                app: Arc::clone(self),
                backend,
            }));
        }
    }
}

impl State {
    /// Whether a wake begins now: somebody waits, nobody can serve, nobody asked yet.
    fn begins_to_demand(&mut self) -> bool {
        let needed = self.breaker.parked() > 0 && !self.breaker.has_backend();
        let begins = needed && !self.wake.asking;
        if begins {
            self.wake = Wake {
                asking: true,
                awaiting_first_byte: true,
                first_byte: None,
            };
        }
        begins
    }
}

async fn demand_again(app: Weak<App>) {
    loop {
        sleep(DEMAND_AGAIN).await;
        if !app.upgrade().is_some_and(|app| app.still_demands()) {
            return;
        }
    }
}

/// One slot at one backend, until dropped.
pub(crate) struct Grant {
    app: Arc<App>,
    backend: Arc<Backend>,
}

impl Grant {
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a slot of VIP {} at {}",
            self.app.vip,
            self.backend.address()
        )
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.app.give_back(self.backend.address());
    }
}

/// One request that the app's load counts, until dropped.
pub(crate) struct Visit {
    app: Arc<App>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.app.state.lock().load.leave(Boottime::now());
    }
}

/// A place in line, until dropped.
struct Parking {
    app: Arc<App>,
    ticket: Ticket,
    granted: oneshot::Receiver<Grant>,
    since: Instant,
    bytes: usize,
    _share: Share,
}

impl Parking {
    fn new(
        app: &Arc<App>,
        ticket: Ticket,
        bytes: usize,
        granted: oneshot::Receiver<Grant>,
        share: Share,
    ) -> Self {
        app.core.metrics.parked.inc();
        app.core.metrics.parked_bytes.inc_by(gauge(bytes));
        Self {
            app: Arc::clone(app),
            ticket,
            granted,
            since: Instant::now(),
            bytes,
            _share: share,
        }
    }

    async fn granted(&mut self) -> Result<Grant, NoSlot> {
        let granted = (&mut self.granted).await;
        self.app
            .core
            .metrics
            .park_duration
            .observe(self.since.elapsed().as_secs_f64());
        // The waiter's other half is dropped only with the app.
        granted.map_err(|_gone| NoSlot::Removed)
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        // Out of the line first: a slot granted meanwhile is in the channel and goes back with it.
        drop(self.app.state.lock().breaker.give_up(self.ticket));
        self.app.core.metrics.parked.dec();
        self.app.core.metrics.parked_bytes.dec_by(gauge(self.bytes));
    }
}

fn gauge(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

//! One app behind its lock: its route, line, slots and load, and the demand for its first pod.

mod slot;
mod wake;

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::Backend;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::breaker::Breaker;
use crate::config::{Config, Route};
use crate::handle::{Demand, Stat};
use crate::load::Load;
use crate::metrics::Metrics;
use crate::park::{Budget, Full, Room, Ticket};
use slot::Parking;
use wake::Wake;

pub(crate) use slot::{Grant, Visit};

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

/// Why there is no slot and will be none.
#[derive(Clone, Copy, Debug)]
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

//! One app: its route, queue, slots and load behind one lock, and the demand for its route and its first pod.

mod guard;
mod lookup;
mod wake;

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::{Backend, ConnectionLimit};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::answers::Answers;
use crate::breaker::Breaker;
use crate::config::{Config, Problem, Route};
use crate::demand::Demand;
use crate::load::Load;
use crate::metrics::Metrics;
use crate::park::{Budget, LimitReached, QueueLimits, Ticket};
use crate::report::{Report, Stat, Unanswered};
use crate::split::Split;
use guard::ParkedRequest;

pub(crate) use guard::{CountedRequest, Grant};
pub(crate) use lookup::{Asked, NoRoute};
pub(crate) use wake::SentRequest;

/// Time for which a backend that refused a connection is used last.
const AVOIDED_FOR: Duration = Duration::from_secs(1);

/// The state that all apps share. Its lock is held only for a push or a swap.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) budget: Arc<Budget>,
    /// Connections to backends.
    pub(crate) connections: ConnectionLimit,
    pub(crate) reports: mpsc::Sender<Report>,
    /// Apps with load since the last [`crate::Handle::take_stats`], so that sleeping apps cost nothing there.
    pub(crate) active: Mutex<Vec<Weak<App>>>,
    pub(crate) tickets: AtomicU64,
}

pub(crate) struct App {
    pub(crate) vip: u32,
    /// The VIP is in serve mode: clients connected to the activator are asked to reconnect.
    pub(crate) serving: AtomicBool,
    /// Notified when `serving` becomes true; HTTP/2 connections then send GOAWAY.
    pub(crate) serving_begun: Notify,
    pub(crate) connections: AtomicUsize,
    /// Requests whose target a split has selected.
    pub(crate) turns: AtomicU32,
    pub(crate) core: Arc<Core>,
    /// Notified when control has answered for the VIP: by a route, or that there is no app.
    answered: Notify,
    state: Mutex<State>,
}

struct State {
    /// None: control has not answered yet.
    route: Option<Arc<RequestRoute>>,
    demand: Demand,
    breaker: Breaker<oneshot::Sender<Grant>>,
    backends: HashMap<SocketAddrV6, Arc<Backend>>,
    load: Load,
    answers: Answers,
    /// Listed in [`Core::active`].
    active: bool,
    /// Responses that backends have begun.
    responses: u64,
    removed: bool,
    /// Why there is no backend.
    problem: Option<Problem>,
}

/// The part of a route that requests need.
pub(crate) struct RequestRoute {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) timeout: Duration,
    pub(crate) wake_timeout: Duration,
    pub(crate) split: Option<Split>,
}

/// Reasons why a request gets no slot.
#[derive(Clone, Debug)]
pub(crate) enum NoSlot {
    /// The request cannot be parked.
    Limit(LimitReached),
    /// The app was removed.
    Removed,
    /// No pod became ready in time.
    NotReady(Option<Problem>),
    /// Control expects no pod to become ready soon.
    Failing(Option<Problem>),
}

/// A request that needs a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) ticket: Ticket,
    /// Memory of the request while it is parked.
    pub(crate) bytes: usize,
    /// Time of its arrival.
    pub(crate) arrived: Instant,
    /// Longest time for which it is parked while there is no backend.
    pub(crate) wake_timeout: Duration,
}

enum Entered {
    Slot(Grant),
    Parked(ParkedRequest),
}

impl App {
    /// An app whose route is not known.
    pub(crate) fn new(vip: u32, core: &Arc<Core>) -> Arc<Self> {
        let state = State {
            route: None,
            demand: Demand::default(),
            breaker: Breaker::default(),
            backends: HashMap::new(),
            load: Load::default(),
            answers: Answers::default(),
            active: false,
            responses: 0,
            removed: false,
            problem: None,
        };
        Arc::new(Self {
            vip,
            serving: AtomicBool::new(false),
            serving_begun: Notify::new(),
            connections: AtomicUsize::new(0),
            turns: AtomicU32::new(0),
            core: Arc::clone(core),
            answered: Notify::new(),
            state: Mutex::new(state),
        })
    }

    /// Sets a new route and grants its free slots to parked requests.
    pub(crate) fn configure(self: &Arc<Self>, route: Route) {
        let is_failing = route.refuses();
        let mut state = self.state.lock();
        state.route = Some(Arc::new(RequestRoute {
            name: route.name,
            port: route.port,
            timeout: route.timeout,
            wake_timeout: route.wake_timeout.min(route.timeout),
            split: route.split,
        }));
        // They are answered when the lock is released.
        let refused = if is_failing {
            state.breaker.unpark_all()
        } else {
            Vec::new()
        };
        state.problem = route.problem;
        state
            .breaker
            .configure(route.container_concurrency, &route.backends);
        self.set_backends(state, &route.backends);
        drop(refused);
        self.answered.notify_waiters();
        let before = self.serving.swap(route.serving, Ordering::AcqRel);
        if route.serving && !before {
            self.serving_begun.notify_waiters();
        }
    }

    /// Takes the backends away. An app without a route stays without one: its requests wait for control's answer.
    pub(crate) fn asleep(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.problem = None;
        // What it is split over may have gone: the next request asks.
        let is_split = state
            .route
            .as_ref()
            .is_some_and(|route| route.split.is_some());
        if is_split {
            state.route = None;
        }
        state.breaker.configure(0, &[]);
        self.set_backends(state, &[]);
        self.serving.store(false, Ordering::Release);
    }

    fn set_backends(self: &Arc<Self>, mut state: MutexGuard<'_, State>, backends: &[SocketAddrV6]) {
        state.backends.retain(|address, backend| {
            let stays = backends.contains(address);
            if !stays {
                backend.close();
            }
            stays
        });
        state.answers.retain(backends);
        for address in backends {
            let limits = self.core.config.backend;
            state
                .backends
                .entry(*address)
                .or_insert_with(|| Backend::new(*address, limits, &self.core.connections));
        }
        // If the last backend was removed, requests that waited for its slots now wait for a pod.
        let need = state.begins_wake();
        self.grant_free_slots(state);
        self.raise(need);
    }

    /// Answers all parked requests that the app was removed; requests at backends continue.
    pub(crate) fn remove(&self) {
        let mut state = self.state.lock();
        state.removed = true;
        state.breaker.configure(0, &[]);
        for (_address, backend) in state.backends.drain() {
            backend.close();
        }
        let parked = state.breaker.unpark_all();
        drop(state);
        drop(parked);
        self.answered.notify_waiters();
    }

    /// Counts a request in the load until the result is dropped.
    pub(crate) fn count_request(self: &Arc<Self>) -> CountedRequest {
        let mut state = self.state.lock();
        state.load.enter(Boottime::now());
        if !state.active {
            state.active = true;
            self.core.active.lock().push(Arc::downgrade(self));
        }
        CountedRequest {
            app: Arc::clone(self),
        }
    }

    /// Waits in the queue for a slot. Dropping the future removes the request from the queue, or frees its slot.
    pub(crate) async fn slot(self: &Arc<Self>, claim: Claim) -> Result<Grant, NoSlot> {
        match self.enter(claim)? {
            Entered::Slot(grant) => Ok(grant),
            Entered::Parked(mut parked) => parked.granted().await,
        }
    }

    fn enter(self: &Arc<Self>, claim: Claim) -> Result<Entered, NoSlot> {
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
        if let Some(refusal) = state.refusal() {
            return Err(refusal);
        }
        let reservation = self.core.budget.claim(claim.bytes).map_err(NoSlot::Limit)?;
        let (waiter, granted) = oneshot::channel();
        let limits = QueueLimits {
            count_max: config.queue_per_app_max,
            bytes_max: config.queue_bytes_per_app_max,
        };
        state
            .breaker
            .park(claim.ticket, claim.bytes, waiter, limits)
            .map_err(NoSlot::Limit)?;
        let need = state.begins_wake();
        drop(state);
        self.raise(need);
        let parked = ParkedRequest {
            app: Arc::clone(self),
            claim,
            granted,
            since: Instant::now(),
            unanswered: Some(Unanswered::Abandoned),
            _reservation: reservation,
        };
        Ok(Entered::Parked(parked.counted()))
    }

    /// Why a parked request is not parked any longer, although it got no slot.
    pub(crate) fn unparked(&self) -> NoSlot {
        let state = self.state.lock();
        if state.removed {
            return NoSlot::Removed;
        }
        NoSlot::Failing(state.problem.clone())
    }

    /// Why a request whose time is over is not parked any longer; none: the app is awake, so it waited for a slot.
    pub(crate) fn not_ready(&self) -> Option<NoSlot> {
        let state = self.state.lock();
        let is_awake = state.breaker.has_backend();
        (!is_awake).then(|| NoSlot::NotReady(state.problem.clone()))
    }

    /// Records that `address` refused a connection; returns whether there is another backend to try at once.
    pub(crate) fn avoid(&self, address: SocketAddrV6) -> bool {
        let now = Boottime::now();
        let mut state = self.state.lock();
        state.breaker.avoid(address, now + AVOIDED_FOR);
        state.breaker.has_healthy(now)
    }

    /// The load since `since`, and whether the app is still active.
    pub(crate) fn take_stat(&self, since: Boottime, now: Boottime) -> (Stat, bool) {
        let mut state = self.state.lock();
        let average = state.load.take(since, now);
        state.active = !state.load.is_idle();
        let stat = Stat {
            concurrency: average.concurrency,
            requests: average.requests,
            parked: u32::try_from(state.breaker.parked()).unwrap_or(u32::MAX),
            responses_total: state.responses,
        };
        (stat, state.active)
    }

    fn release(self: &Arc<Self>, address: SocketAddrV6) {
        let mut state = self.state.lock();
        state.breaker.leave(address);
        self.grant_free_slots(state);
    }

    /// Grants free slots to parked requests. Grants are sent after the lock is released: one whose receiver is gone is
    /// dropped, and that locks again to free its slot.
    fn grant_free_slots(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
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
    /// Why a request is refused at once; none: it may be parked.
    fn refusal(&self) -> Option<NoSlot> {
        let problem = self.problem.as_ref()?;
        let refuses = problem.retry_after.is_some() && !self.breaker.has_backend();
        refuses.then(|| NoSlot::Failing(Some(problem.clone())))
    }
}

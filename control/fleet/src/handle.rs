//! The fleet's interface for the rest of control: publishes entries and pods, waits until changes have settled, and
//! delivers the nodes' events.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_nodes::{AddressError, Claim, Claims, Place, Refused};
use dormouse_trust::Revocations;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::logs::{LogError, LogText, Logs};
use crate::names::Names;
use crate::proto::{Entry, LogRequest, LogRun, PodSpec};
use crate::root::{Event, Root, Session, WANTED_MAX};
use crate::state::{Changed, State};

/// Capacity of the event channel. When it is full, no message is read from the streams.
pub(crate) const EVENTS_MAX: usize = 1_024;

/// The fleet, for the rest of control; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// Held for microseconds, never across an await.
    pub(crate) state: Mutex<Guarded>,
    pub(crate) events: mpsc::Sender<Event>,
    /// The timer of [`watch_leases`] is late.
    leases: Notify,
    /// A node follows VIPs that control has to be asked for.
    pub(crate) wanted: Notify,
    pub(crate) logs: Arc<Logs>,
    pub(crate) revocations: Arc<Revocations>,
}

pub(crate) struct Guarded {
    pub(crate) fleet: State,
    pub(crate) wakers: BTreeMap<Session, Arc<Notify>>,
    pub(crate) names: Names,
    /// Of the nodes whose lease has not expired.
    pub(crate) claims: Claims,
}

/// Starts the root. The event channel closes when all handles and streams have been dropped.
pub fn start(config: ServerConfig, shutdown: CancellationToken) -> (Handle, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let shared = Arc::new(Shared {
        state: Mutex::new(Guarded {
            claims: Claims::new(config.reserved(), config.own.clone()),
            fleet: State::new(config, Boottime::now()),
            wakers: BTreeMap::new(),
            names: Names::default(),
        }),
        events,
        leases: Notify::new(),
        wanted: Notify::new(),
        logs: Arc::default(),
        revocations: Arc::default(),
    });
    tokio::spawn(watch_leases(Arc::clone(&shared), shutdown.clone()));
    tokio::spawn(ask_for_wanted(Arc::clone(&shared), shutdown));
    (Handle { shared }, receiver)
}

impl Handle {
    /// Publishes `entry` as its VIP's newest and sends it to the nodes that follow the VIP. The entry of a sleeping app
    /// that no node follows is not kept: [`Event::Wanted`] asks for it again.
    pub fn publish(&self, entry: Entry) {
        self.change_entry(|fleet, now| fleet.publish(entry, now));
    }

    /// As [`Handle::publish`], for an app without load whose former entry has no pod that is lost: the entry is sent with other
    /// changes, or a second later.
    pub fn publish_idle(&self, entry: Entry) {
        self.change_entry(|fleet, now| fleet.publish_idle(entry, now));
    }

    /// The store had this control's epoch at `at`, or later. For a third of the lease after it, nodes are sent entries, pods and
    /// grants.
    pub fn confirmed(&self, at: Boottime) {
        self.change(|root| root.confirmed(at, Boottime::now()));
    }

    /// Answers [`Event::Wanted`]: no such VIP exists.
    pub fn absent(&self, vip: u32) {
        self.change_entry(|fleet, now| fleet.absent(vip, now));
    }

    /// Runs or stops a pod on a node. For a disconnected node it is stored until the node is lost; a lost node that
    /// reconnects needs [`Handle::sync_pods`].
    pub fn run(&self, node: &str, pod: PodSpec) {
        self.change(|root| root.run(node, pod));
    }

    /// Sends a node the complete list of its pods; it stops all others.
    pub fn sync_pods(&self, node: &str, pods: Vec<PodSpec>) {
        self.change(|root| root.sync_pods(node, pods));
    }

    /// Sends [`Event::Settled`] when no node uses an older version of the VIP's entry: each has acknowledged this or a newer
    /// version, has stopped following the VIP, or its lease has expired. A later call for the VIP replaces this one.
    pub fn settle(&self, vip: u32, version: u64) {
        let settled = self
            .shared
            .step(|guarded, now| guarded.fleet.settle(vip, version, now));
        self.shared.emit(settled);
    }

    /// Resolves as [`Handle::settle`] sends its event. Cancel safe.
    pub async fn settled(&self, vip: u32, version: u64) {
        let (settled, event) = self
            .shared
            .step(|guarded, now| guarded.fleet.call(vip, version, now));
        self.shared.emit(event);
        // An error is impossible: it ends with this handle.
        drop(settled.await);
    }

    /// The revoked nodes.
    pub fn revocations(&self) -> &Arc<Revocations> {
        &self.shared.revocations
    }

    /// Refuses the certificates that a node has had at `at`, and ends its streams.
    pub fn revoke(&self, node: &str, at: SystemTime) {
        self.shared.revocations.revoke(node, at);
        self.shared.state.lock().names.end(node);
        self.shared.logs.end(node);
    }

    /// Whether a node has an open stream.
    pub fn is_connected(&self, node: &str) -> bool {
        self.shared.state.lock().names.contains(node)
    }

    /// Refuses an address of a pod that its node cannot give it. `place`: what the Node object says, of a node that may have no stream.
    pub fn check_pod_address(
        &self,
        (node, place): (&str, Option<Place>),
        address: IpAddr,
        host_network: bool,
    ) -> Result<(), AddressError> {
        let claims = &self.shared.state.lock().claims;
        let place = place.unwrap_or_else(|| claims.place_of(node));
        claims.check_pod((node, &place), address, host_network)
    }

    /// Refuses an address at which a Service cannot answer outside.
    pub fn check_external_address(&self, address: IpAddr) -> Result<(), AddressError> {
        self.shared.state.lock().claims.check_external(address)
    }

    /// Refuses an address that a node cannot have.
    pub fn check_node_address(&self, node: &str, address: &str) -> Result<(), Refused> {
        let claim = Claim::parse(node, "", address)?;
        self.shared.state.lock().claims.check(node, &claim)
    }

    /// The nodes that offer the logs of their pods.
    pub fn log_nodes(&self) -> Vec<String> {
        self.shared.logs.nodes()
    }

    /// Reads the log of a pod on a node; the request's `id` is set here.
    pub async fn read_log(&self, node: &str, request: LogRequest) -> Result<LogText, LogError> {
        self.shared.logs.read(node, request).await
    }

    /// Lists the runs on a node of the pods of an app, of which it has logs.
    pub async fn log_runs(
        &self,
        node: &str,
        namespace: &str,
        app: &str,
    ) -> Result<Vec<LogRun>, LogError> {
        let request = LogRequest {
            list: true,
            namespace: namespace.to_owned(),
            app: app.to_owned(),
            ..LogRequest::default()
        };
        self.shared.logs.runs(node, request).await
    }

    /// Whether the store has confirmed the epoch lately. Otherwise nodes are sent nothing, and get no leases.
    pub fn is_confirmed(&self) -> bool {
        let guarded = self.shared.state.lock();
        guarded.fleet.root.is_confirmed(Boottime::now())
    }

    /// The number of nodes with an open stream.
    pub fn streams(&self) -> usize {
        self.shared.state.lock().fleet.root.streams()
    }

    fn change_entry(&self, change: impl FnOnce(&mut State, Boottime) -> Changed) {
        let settled = self.shared.step(|guarded, now| {
            let changed = change(&mut guarded.fleet, now);
            guarded.wake(changed.wakes);
            changed.settled
        });
        self.shared.emit(settled);
    }

    fn change<Sessions: IntoIterator<Item = Session>>(
        &self,
        change: impl FnOnce(&mut Root) -> Sessions,
    ) {
        let mut guarded = self.shared.state.lock();
        let wakes = change(&mut guarded.fleet.root);
        guarded.wake(wakes);
    }
}

impl Shared {
    /// A step after which a lease may end for which something waits.
    pub(crate) fn step<T>(&self, step: impl FnOnce(&mut Guarded, Boottime) -> T) -> T {
        let mut guarded = self.state.lock();
        let result = step(&mut guarded, Boottime::now());
        if guarded.fleet.is_timer_late() {
            self.leases.notify_one();
        }
        result
    }

    /// Sends an event without waiting.
    pub(crate) fn emit(&self, event: Option<Event>) {
        let Some(event) = event else { return };
        if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
            let events = self.events.clone();
            tokio::spawn(async move { drop(events.send(event).await) });
        }
    }
}

impl Guarded {
    pub(crate) fn wake(&self, sessions: impl IntoIterator<Item = Session>) {
        let wakers = sessions.into_iter().filter_map(|one| self.wakers.get(&one));
        wakers.for_each(|waker| waker.notify_one());
    }
}

/// Sends [`Event::NodeDown`] for nodes without a stream when their lease has expired, and [`Event::Settled`] for changes
/// that waited for it.
async fn watch_leases(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        let next = shared.state.lock().fleet.set_timer();
        let wait = next.map_or(Duration::from_hours(1), |at| at.since(Boottime::now()));
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.leases.notified() => continue,
            () = tokio::time::sleep(wait) => {}
        }
        // Capacity is reserved before the lock, so that the event keeps its order with a reconnecting node's `NodeUp`.
        let Ok(permit) = shared.events.reserve().await else {
            return;
        };
        let mut guarded = shared.state.lock();
        if let Some(event) = guarded.fleet.expire(Boottime::now()) {
            if let Event::NodeDown { node } = &event {
                guarded.claims.release(node);
            }
            permit.send(event);
        }
    }
}

/// Sends [`Event::Wanted`] for the VIPs that the root asks control for.
async fn ask_for_wanted(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.wanted.notified() => {}
        }
        // Capacity is reserved before the VIPs are taken, so that none is taken and then lost.
        while shared.state.lock().fleet.root.asks() {
            let Ok(permit) = shared.events.reserve().await else {
                return;
            };
            let vips = shared.state.lock().fleet.root.wanted(WANTED_MAX);
            if !vips.is_empty() {
                permit.send(Event::Wanted { vips });
            }
        }
    }
}

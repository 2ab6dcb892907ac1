//! The fleet's interface for the rest of control: publishes entries and pods, waits until changes have settled, and
//! delivers the nodes' events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::logs::{LogError, LogText, Logs};
use crate::proto::{Entry, LogRequest, LogRun, PodSpec};
use crate::root::{Event, Root, Session, WANTED_MAX};
use crate::settles::Settles;

/// Capacity of the event channel. When it is full, no message is read from the streams.
const EVENTS_MAX: usize = 1_024;

/// The fleet, for the rest of control; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// Held for microseconds, never across an await.
    pub(crate) state: Mutex<State>,
    pub(crate) events: mpsc::Sender<Event>,
    /// A stream ended, or a change waits for a lease: [`watch_leases`] computes its next deadline again.
    pub(crate) leases: Arc<Notify>,
    /// A node follows VIPs that control has to be asked for.
    pub(crate) wanted: Notify,
    pub(crate) logs: Arc<Logs>,
}

pub(crate) struct State {
    pub(crate) root: Root,
    pub(crate) wakers: BTreeMap<Session, Arc<Notify>>,
    pub(crate) settles: Settles,
    leases: Arc<Notify>,
}

/// Starts the root. The event channel closes when all handles and streams have been dropped.
pub fn start(config: ServerConfig, shutdown: CancellationToken) -> (Handle, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let root = Root::new(config, Boottime::now());
    let leases = Arc::new(Notify::new());
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            root,
            wakers: BTreeMap::new(),
            settles: Settles::default(),
            leases: Arc::clone(&leases),
        }),
        events,
        leases,
        wanted: Notify::new(),
        logs: Arc::default(),
    });
    tokio::spawn(watch_leases(Arc::clone(&shared), shutdown.clone()));
    tokio::spawn(ask_for_wanted(Arc::clone(&shared), shutdown));
    (Handle { shared }, receiver)
}

impl Handle {
    /// Publishes `entry` as its VIP's newest and sends it to the nodes that follow the VIP. The entry of a sleeping app
    /// that no node follows is not kept: [`Event::Wanted`] asks for it again.
    pub fn publish(&self, entry: Entry) {
        let vip = entry.vip;
        let mut state = self.shared.state.lock();
        for session in state.root.publish(entry) {
            state.wake(session);
        }
        let settled = state.settled(vip, Boottime::now());
        drop(state);
        self.shared.emit(settled);
    }

    /// The store had this control's epoch at `at`, or later. For a third of the lease after it, nodes are sent entries, pods and
    /// grants.
    pub fn confirmed(&self, at: Boottime) {
        self.change(|root| root.confirmed(at, Boottime::now()));
    }

    /// Answers [`Event::Wanted`]: no such VIP exists.
    pub fn absent(&self, vip: u32) {
        let mut state = self.shared.state.lock();
        for session in state.root.absent(vip) {
            state.wake(session);
        }
        let settled = state.settled(vip, Boottime::now());
        drop(state);
        self.shared.emit(settled);
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
        let mut state = self.shared.state.lock();
        let settled = state
            .change_settles(|settles, root| settles.add(root, (vip, version), Boottime::now()));
        drop(state);
        self.shared.emit(settled);
    }

    /// Resolves as [`Handle::settle`] sends its event. Cancel safe.
    pub async fn settled(&self, vip: u32, version: u64) {
        let (settled, event) = {
            let mut state = self.shared.state.lock();
            let settled = state.settles.call(vip, version);
            (settled, state.settled(vip, Boottime::now()))
        };
        self.shared.emit(event);
        // An error is impossible: it ends with this handle.
        drop(settled.await);
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
        let state = self.shared.state.lock();
        state.root.is_confirmed(Boottime::now())
    }

    /// The number of nodes with an open stream.
    pub fn streams(&self) -> usize {
        self.shared.state.lock().root.streams()
    }

    fn change<Sessions: IntoIterator<Item = Session>>(
        &self,
        change: impl FnOnce(&mut Root) -> Sessions,
    ) {
        let mut state = self.shared.state.lock();
        for session in change(&mut state.root) {
            state.wake(session);
        }
    }
}

impl Shared {
    /// Sends an event without waiting.
    pub(crate) fn emit(&self, event: Option<Event>) {
        let Some(event) = event else { return };
        if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
            let events = self.events.clone();
            tokio::spawn(async move { drop(events.send(event).await) });
        }
    }
}

impl State {
    /// A VIP's entry was acknowledged, changed or dropped: the event if a change of it has settled.
    pub(crate) fn settled(&mut self, vip: u32, now: Boottime) -> Option<Event> {
        self.change_settles(|settles, root| settles.check(root, vip, now))
    }

    /// Changes what waits for the ends of leases: the first of them may be an earlier one afterwards.
    fn change_settles<T>(&mut self, change: impl FnOnce(&mut Settles, &Root) -> T) -> T {
        let before = self.settles.due_at();
        let changed = change(&mut self.settles, &self.root);
        let first = self.settles.due_at();
        if first.is_some_and(|first| before.is_none_or(|before| first < before)) {
            self.leases.notify_one();
        }
        changed
    }

    fn lease_ends_at(&self) -> Option<Boottime> {
        let ends = [self.root.expires_at(), self.settles.due_at()];
        ends.into_iter().flatten().min()
    }

    /// What follows from the end of a lease, one event at a time.
    fn expire(&mut self, now: Boottime) -> Option<Event> {
        let settled = self.settles.expire(&self.root, now);
        settled.or_else(|| self.root.expire(now))
    }

    pub(crate) fn wake(&self, session: Session) {
        if let Some(waker) = self.wakers.get(&session) {
            waker.notify_one();
        }
    }
}

/// Sends [`Event::NodeDown`] for nodes without a stream when their lease has expired, and [`Event::Settled`] for changes
/// that waited for it.
async fn watch_leases(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        let next = shared.state.lock().lease_ends_at();
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
        if let Some(event) = shared.state.lock().expire(Boottime::now()) {
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
        while shared.state.lock().root.asks() {
            let Ok(permit) = shared.events.reserve().await else {
                return;
            };
            let vips = shared.state.lock().root.wanted(WANTED_MAX);
            if !vips.is_empty() {
                permit.send(Event::Wanted { vips });
            }
        }
    }
}

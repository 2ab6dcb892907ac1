//! The fleet's interface for the rest of control: publishes entries and pods, waits until changes have settled, and
//! delivers the nodes' events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::logs::{LogError, LogText, Logs};
use crate::proto::{Entry, LogRequest, LogRun, PodSpec};
use crate::root::{Event, Root, Session, Settling, WANTED_MAX};
use crate::waiters::Waiters;

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
    /// A stream ended: [`watch_lost_nodes`] computes its next deadline again.
    pub(crate) ended: Notify,
    /// A node follows VIPs that control has to be asked for.
    pub(crate) wanted: Notify,
    pub(crate) logs: Arc<Logs>,
}

pub(crate) struct State {
    pub(crate) root: Root,
    pub(crate) wakers: BTreeMap<Session, Arc<Notify>>,
    /// The tasks in [`Handle::settled`].
    pub(crate) settling: Waiters,
}

/// Starts the root. The event channel closes when all handles and streams have been dropped.
pub fn start(config: ServerConfig, shutdown: CancellationToken) -> (Handle, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let root = Root::new(config, Boottime::now());
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            root,
            wakers: BTreeMap::new(),
            settling: Waiters::default(),
        }),
        events,
        ended: Notify::new(),
        wanted: Notify::new(),
        logs: Arc::default(),
    });
    tokio::spawn(watch_lost_nodes(Arc::clone(&shared), shutdown.clone()));
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
        state.settling.wake(vip);
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
        state.settling.wake(vip);
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

    /// Resolves when no node uses an older version of the VIP's entry: each has acknowledged this or a newer version,
    /// has stopped following the VIP, or its lease has expired. Cancel safe.
    pub async fn settled(&self, vip: u32, version: u64) {
        loop {
            let now = Boottime::now();
            let (until, woken) = {
                let mut state = self.shared.state.lock();
                match state.root.settling(vip, version, now) {
                    Settling::Settled => return state.settling.forget(vip),
                    Settling::Wait(until) => (until, state.settling.add(vip)),
                }
            };
            match until {
                None => drop(woken.await),
                Some(until) => drop(tokio::time::timeout(until.since(now), woken).await),
            }
        }
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

impl State {
    pub(crate) fn wake(&self, session: Session) {
        if let Some(waker) = self.wakers.get(&session) {
            waker.notify_one();
        }
    }
}

/// Sends [`Event::NodeDown`] for nodes without a stream when their lease has expired.
async fn watch_lost_nodes(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        let now = Boottime::now();
        let next = shared.state.lock().root.expires_at();
        let wait = next.map_or(Duration::from_hours(1), |at| at.since(now));
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.ended.notified() => continue,
            () = tokio::time::sleep(wait) => {}
        }
        // Capacity is reserved before the lock, so that the event keeps its order with a reconnecting node's `NodeUp`.
        let Ok(permit) = shared.events.reserve().await else {
            return;
        };
        // Tasks that wait for the node wake by themselves at the end of its lease.
        let mut state = shared.state.lock();
        if let Some(event) = state.root.expire(Boottime::now()) {
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

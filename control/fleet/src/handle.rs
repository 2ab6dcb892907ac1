//! What the rest of control holds of the fleet: publishes entries, waits until they have settled, hears of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Boottime;
use crate::lease::{LEASE_DEFAULT, Terms};
use crate::proto::{Entry, NodeConfig, PodSpec};
use crate::root::{Event, Root, Session, Settling};

/// Events that wait for their reader; when full, the nodes' messages wait on the wire.
const EVENTS_MAX: usize = 1_024;

/// How the root of the fleet behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The node lease.
    pub lease: Duration,
    /// Grows with each start of control, also when its store begins empty: nodes obey the highest.
    pub epoch: u64,
    /// What every node is told first.
    pub node_config: NodeConfig,
    /// Of this machine: times from nodes on other machines are shifted to its clock.
    pub boot_id: String,
}

impl ServerConfig {
    /// The usual lease, on this machine.
    pub fn new(epoch: u64, node_config: NodeConfig) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default();
        Self {
            lease: LEASE_DEFAULT,
            epoch,
            node_config,
            boot_id,
        }
    }
}

/// What the rest of control holds of the fleet; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// Held for microseconds, never across an await.
    pub(crate) state: Mutex<State>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Counts whatever may have settled something.
    settles: watch::Sender<u64>,
    /// A stream ended: the watch for lost nodes looks again.
    pub(crate) ended: Notify,
}

pub(crate) struct State {
    pub(crate) root: Root,
    pub(crate) wakers: BTreeMap<Session, Arc<Notify>>,
}

/// Starts the root. Its events end when the handle and all streams are gone.
pub fn start(config: ServerConfig, shutdown: CancellationToken) -> (Handle, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let terms = Terms {
        lease: config.lease,
    };
    let root = Root::new(
        terms,
        config.epoch,
        config.node_config,
        config.boot_id,
        Boottime::now(),
    );
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            root,
            wakers: BTreeMap::new(),
        }),
        events,
        settles: watch::Sender::new(0),
        ended: Notify::new(),
    });
    tokio::spawn(watch_lost_nodes(Arc::clone(&shared), shutdown));
    (Handle { shared }, receiver)
}

impl Handle {
    /// Makes `entry` the newest of its VIP and sends it to the nodes that follow it.
    pub fn publish(&self, entry: Entry) {
        self.change(|root| root.publish(entry));
    }

    /// There is no such VIP any more. To wait for it, publish a `gone` entry with the revision instead.
    pub fn forget(&self, vip: u32) {
        self.change(|root| root.forget(vip));
    }

    /// Runs a pod on a node, or stops it there. Kept for a node that is away until it is lost: one that comes back is
    /// to be told all its pods.
    pub fn run(&self, node: &str, pod: PodSpec) {
        self.change(|root| root.run(node, pod));
    }

    /// Tells a node all its pods; it stops those that are not among them.
    pub fn sync_pods(&self, node: &str, pods: Vec<PodSpec>) {
        self.change(|root| root.sync_pods(node, pods));
    }

    /// Resolves when no node uses an older version of the VIP's entry: each has acknowledged this or a newer one, has
    /// dropped the VIP, or is past its lease. Cancel safe.
    pub async fn settled(&self, vip: u32, version: u64) {
        let mut changes = self.shared.settles.subscribe();
        loop {
            changes.mark_unchanged();
            let now = Boottime::now();
            let settling = self.shared.state.lock().root.settling(vip, version, now);
            match settling {
                Settling::Settled => return,
                Settling::Wait(None) => {
                    let _ = changes.changed().await;
                }
                Settling::Wait(Some(until)) => {
                    let _ = tokio::time::timeout(until.since(now), changes.changed()).await;
                }
            }
        }
    }

    /// How many nodes have a stream.
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
        drop(state);
        self.shared.settled_perhaps();
    }
}

impl State {
    pub(crate) fn wake(&self, session: Session) {
        if let Some(waker) = self.wakers.get(&session) {
            waker.notify_one();
        }
    }
}

impl Shared {
    pub(crate) fn settled_perhaps(&self) {
        self.settles
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Says that a node is down once its stream and its lease are over.
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
        // The place in the channel comes first, so that the event keeps its order with a returning node's.
        let Ok(permit) = shared.events.reserve().await else {
            return;
        };
        let event = {
            let mut state = shared.state.lock();
            let event = state.root.expire(Boottime::now());
            if let Some(event) = event {
                permit.send(event);
                true
            } else {
                false
            }
        };
        if event {
            shared.settled_perhaps();
        }
    }
}

//! Serves the fleet stream over gRPC: one small task a stream around the pure root, and no queue of entries anywhere.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::clock::Boottime;
use crate::lease::{LEASE_DEFAULT, Terms};
use crate::proto::fleet_server::{Fleet, FleetServer};
use crate::proto::{Down, Entry, NodeConfig, PodSpec, Up};
use crate::root::{Event, Next, Root, Session, Settling};

/// Events that wait for their reader; when full, the nodes' messages wait on the wire.
const EVENTS_MAX: usize = 1_024;
/// A stream whose first message does not come by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// A node may report every pod it has in one message.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

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
    shared: Arc<Shared>,
}

struct Shared {
    /// Held for microseconds, never across an await.
    state: Mutex<State>,
    events: mpsc::Sender<Event>,
    /// Counts whatever may have settled something.
    settles: watch::Sender<u64>,
    /// A stream ended: the watch for lost nodes looks again.
    ended: Notify,
}

struct State {
    root: Root,
    wakers: BTreeMap<Session, Arc<Notify>>,
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

/// Serves agents until `shutdown`; their streams end with it.
pub async fn serve(
    listener: TcpListener,
    handle: Handle,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let service = FleetServer::new(Service {
        handle,
        shutdown: shutdown.clone(),
    })
    .max_decoding_message_size(MESSAGE_BYTES_MAX)
    .max_encoding_message_size(MESSAGE_BYTES_MAX);
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .initial_connection_window_size(1 << 20)
        .tcp_nodelay(true)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), shutdown.cancelled_owned())
        .await
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

    /// Runs a pod on a node, or stops it there. Kept for a node that is away.
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
    fn wake(&self, session: Session) {
        if let Some(waker) = self.wakers.get(&session) {
            waker.notify_one();
        }
    }
}

impl Shared {
    fn settled_perhaps(&self) {
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

struct Service {
    handle: Handle,
    shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Fleet for Service {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<Down, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<Up>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let mut ups = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, ups.message())
            .await
            .map_err(|_elapsed| Status::deadline_exceeded("no hello within 10 s"))??
            .unwrap_or_default();
        let stream = OpenStream::open(&self.handle, first, &self.shutdown).await?;
        tokio::spawn(listen(Arc::clone(&stream), ups));
        Ok(Response::new(Box::pin(futures::stream::unfold(
            stream, speak,
        ))))
    }
}

/// One node's stream, from its hello to its end: dropping it, at either side, ends the session.
struct OpenStream {
    shared: Arc<Shared>,
    session: Session,
    waker: Arc<Notify>,
    over: CancellationToken,
}

impl OpenStream {
    async fn open(
        handle: &Handle,
        mut first: Up,
        shutdown: &CancellationToken,
    ) -> Result<Arc<Self>, Status> {
        let shared = Arc::clone(&handle.shared);
        let stopping = || Status::unavailable("control is stopping");
        let permit = shared
            .events
            .reserve()
            .await
            .map_err(|_closed| stopping())?;
        let waker = Arc::new(Notify::new());
        let session = {
            let mut state = shared.state.lock();
            let hello = first.hello.take().unwrap_or_default();
            let opened = state
                .root
                .hello(hello)
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            // A stream that this one replaces has to notice it.
            opened
                .replaced
                .into_iter()
                .for_each(|older| state.wake(older));
            state.wakers.insert(opened.session, Arc::clone(&waker));
            permit.send(opened.event);
            opened.session
        };
        let stream = Arc::new(Self {
            session,
            waker,
            over: shutdown.child_token(),
            shared,
        });
        stream.hear(first).await.map_err(|_closed| stopping())?;
        stream.shared.settled_perhaps();
        Ok(stream)
    }

    async fn hear(&self, up: Up) -> Result<(), mpsc::error::SendError<Event>> {
        let heard = self
            .shared
            .state
            .lock()
            .root
            .hear(self.session, up, Boottime::now());
        if heard.wakes {
            self.waker.notify_one();
        }
        if heard.settles {
            self.shared.settled_perhaps();
        }
        for event in heard.events {
            self.shared.events.send(event).await?;
        }
        Ok(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.wakers.remove(&self.session);
        state.root.end(self.session, Boottime::now());
        drop(state);
        self.shared.ended.notify_one();
    }
}

/// Takes in what the node says until its half ends.
async fn listen(stream: Arc<OpenStream>, mut ups: Streaming<Up>) {
    let over = stream.over.clone();
    let _end = over.clone().drop_guard();
    loop {
        let up = tokio::select! {
            () = over.cancelled() => return,
            up = ups.message() => up,
        };
        let Ok(Some(up)) = up else { return };
        if stream.hear(up).await.is_err() {
            return;
        }
    }
}

/// The next message to the node; asked for only when the connection takes more, so the newest always wins.
async fn speak(stream: Arc<OpenStream>) -> Option<(Result<Down, Status>, Arc<OpenStream>)> {
    loop {
        let next = stream
            .shared
            .state
            .lock()
            .root
            .next(stream.session, Boottime::now());
        match next {
            Next::Send(down) => return Some((Ok(*down), stream)),
            Next::Over => {
                stream.over.cancel();
                return None;
            }
            Next::Idle => tokio::select! {
                () = stream.over.cancelled() => return None,
                () = stream.waker.notified() => {}
            },
        }
    }
}

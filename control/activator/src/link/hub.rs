//! The link's interface for the controller, and the streams of its activators: one task each around the pure root.
//! Messages are made only when the stream accepts one, so no queue of routes exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_fleet::Boottime;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::proto::{Down, Up};
use super::root::{Event, Next, Root, Session};
use crate::Route;

/// Capacity of the event channel. When it is full, no message is read from the streams.
const EVENTS_MAX: usize = 1_024;
/// Messages in flight on a stream, in each direction.
const STREAM_MAX: usize = 2;

/// The controller's half of the link; cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held for microseconds, never across an await.
    state: Mutex<State>,
    events: mpsc::Sender<Event>,
}

struct State {
    root: Root,
    wakers: BTreeMap<Session, Arc<Notify>>,
}

/// The link of a control with this epoch, and what its activators report. The event channel closes when all hubs and
/// streams have been dropped.
pub fn start(epoch: u64) -> (Hub, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let state = State {
        root: Root::new(epoch, super::attach::boot_id()),
        wakers: BTreeMap::new(),
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        events,
    });
    (Hub { shared }, receiver)
}

impl Hub {
    /// Sets an app's route. With backends every activator gets it; without any, those that had backends, and those that
    /// wait for the answer to a want: it is dropped where nothing uses the app, and parked requests stay parked.
    pub fn publish(&self, vip: u32, route: Route) {
        self.change(|root| root.publish(vip, route));
    }

    /// A VIP has no app: requests for it are answered 404. Answers a want too.
    pub fn absent(&self, vip: u32) {
        self.change(|root| root.absent(vip));
    }

    /// Sets the ports on which activators listen: those of all apps, sleeping ones too.
    pub fn ports(&self, ports: BTreeSet<u16>) {
        self.change(|root| root.ports(ports));
    }

    /// All awake apps have been published since the start: activators drop what an earlier control gave them.
    pub fn complete(&self) {
        self.change(Root::complete);
    }

    /// The number of attached activators.
    pub fn streams(&self) -> usize {
        self.shared.state.lock().root.streams()
    }

    /// The number of routes held: of apps with backends.
    pub fn routes(&self) -> usize {
        self.shared.state.lock().root.routes()
    }

    fn change(&self, change: impl FnOnce(&mut Root) -> Vec<Session>) {
        let mut state = self.shared.state.lock();
        for session in change(&mut state.root) {
            if let Some(waker) = state.wakers.get(&session) {
                waker.notify_one();
            }
        }
    }

    /// Opens a stream in this process. `hello` is its first message.
    pub(super) fn attach(&self, hello: Up) -> (mpsc::Sender<Up>, mpsc::Receiver<Down>) {
        let (ups, received) = mpsc::channel(STREAM_MAX);
        (ups, self.open(hello, ReceiverStream::new(received)))
    }

    /// Opens a stream; it ends with `ups`, or when the receiver of its messages is dropped.
    pub(super) fn open(
        &self,
        mut hello: Up,
        ups: impl Stream<Item = Up> + Send + Unpin + 'static,
    ) -> mpsc::Receiver<Down> {
        let waker = Arc::new(Notify::new());
        let greeting = hello.hello.take().unwrap_or_default();
        let name = greeting.name.clone();
        let session = {
            let mut state = self.shared.state.lock();
            let (session, older) = state.root.open(greeting);
            if let Some(older) = older.and_then(|older| state.wakers.remove(&older)) {
                // Its task finds the session closed.
                older.notify_one();
            }
            state.wakers.insert(session, Arc::clone(&waker));
            session
        };
        let (downs, received) = mpsc::channel(STREAM_MAX);
        let stream = OpenStream {
            shared: Arc::clone(&self.shared),
            session,
            waker,
            name,
        };
        tokio::spawn(stream.run(hello, ups, downs));
        received
    }
}

/// One activator's open stream.
struct OpenStream {
    shared: Arc<Shared>,
    session: Session,
    waker: Arc<Notify>,
    name: String,
}

impl OpenStream {
    async fn run(
        self,
        first: Up,
        ups: impl Stream<Item = Up> + Send + Unpin,
        downs: mpsc::Sender<Down>,
    ) {
        let name = self.name.clone();
        // An error means that the controller is gone, which ends the stream below.
        drop(self.shared.events.send(Event::Attached { name }).await);
        tokio::select! {
            () = self.receive_all(first, ups) => {}
            () = self.send_all(&downs) => {}
        }
        let open = {
            let mut state = self.shared.state.lock();
            state.wakers.remove(&self.session);
            state.root.end(self.session)
        };
        if open {
            let name = self.name;
            drop(self.shared.events.send(Event::Detached { name }).await);
        }
    }

    async fn receive_all(&self, first: Up, mut ups: impl Stream<Item = Up> + Send + Unpin) {
        let mut next = Some(first);
        while let Some(up) = next {
            let now = Boottime::now();
            let events = self.shared.state.lock().root.receive(self.session, up, now);
            // The answer to a want of an awake app.
            self.waker.notify_one();
            for event in events {
                if self.shared.events.send(event).await.is_err() {
                    return;
                }
            }
            next = ups.next().await;
        }
    }

    async fn send_all(&self, downs: &mpsc::Sender<Down>) {
        while let Ok(permit) = downs.reserve().await {
            let Some(down) = self.next(downs).await else {
                return;
            };
            permit.send(down);
        }
    }

    /// The next message, as soon as there is one; none when the stream has ended.
    async fn next(&self, downs: &mpsc::Sender<Down>) -> Option<Down> {
        loop {
            let next = self.shared.state.lock().root.next(self.session);
            match next {
                Next::Send(down) => return Some(*down),
                Next::Closed => return None,
                Next::Idle => tokio::select! {
                    () = self.waker.notified() => {}
                    () = downs.closed() => return None,
                },
            }
        }
    }
}

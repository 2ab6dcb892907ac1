//! Serves the fleet stream over gRPC: one small task a stream around the pure root, and no queue of entries anywhere.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::clock::Boottime;
use crate::handle::{Handle, Shared};
use crate::proto::fleet_server::{Fleet, FleetServer};
use crate::proto::{Down, Up};
use crate::root::{Event, Next, Session};

/// A stream whose first message does not come by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// A node may report every pod it has in one message.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

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

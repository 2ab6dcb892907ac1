//! The gRPC server of the fleet stream: one task per stream around the pure root. Messages are made only when the
//! connection accepts one, so no queue of entries exists.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse_handshakes::refusals::Refusals;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use crate::claim::claim;
use crate::clock::Boottime;
use crate::connection::Peer;
use crate::handle::{Handle, Shared};
use crate::incoming::Incoming;
use crate::logs::{CONNECTION_BYTES, STREAM_BYTES};
use crate::names::Origin;
use crate::proto::fleet_server::{Fleet, FleetServer};
use crate::proto::{Down, LogChunk, LogEnd, LogHello, LogRequest, Up};
use crate::refused::Refused;
use crate::root::{Event, Next, Session};
use crate::state::Taken;
use crate::transport::Callers;

/// A stream without a first message by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval and timeout of HTTP/2 keepalive pings.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Limit of one message: room for the status of all pods of a node.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest name of a node in bytes: that of an object (Kubernetes' DNS subdomain).
const NAME_MAX: usize = 253;

/// Serves agents until `shutdown`, which also ends their streams.
pub async fn serve(
    incoming: Incoming,
    handle: Handle,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let service = FleetServer::new(Service {
        handle,
        shutdown: shutdown.clone(),
        refusals: Mutex::default(),
    })
    .max_decoding_message_size(MESSAGE_BYTES_MAX)
    .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Callers::Agents
        .server()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        // A log that is not read holds back its own stream only.
        .initial_stream_window_size(STREAM_BYTES)
        .initial_connection_window_size(CONNECTION_BYTES)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming.connections(), shutdown.cancelled_owned())
        .await
}

struct Service {
    handle: Handle,
    shutdown: CancellationToken,
    refusals: Mutex<Refusals>,
}

#[tonic::async_trait]
impl Fleet for Service {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<Down, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<Up>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let peer = peer(&request);
        let mut ups = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, ups.message())
            .await
            .map_err(|_elapsed| Status::deadline_exceeded("no hello within 10 s"))??
            .unwrap_or_default();
        let node = first.hello.as_ref().map_or("", |hello| &hello.node);
        self.check(&peer, node)?;
        let stream = OpenStream::open(&self.handle, (first, peer), &self.shutdown).await?;
        tokio::spawn(receive_all(Arc::clone(&stream), ups));
        Ok(Response::new(Box::pin(futures::stream::unfold(
            stream, next_down,
        ))))
    }

    type FollowLogsStream = Pin<Box<dyn Stream<Item = Result<LogRequest, Status>> + Send>>;

    async fn follow_logs(
        &self,
        request: Request<LogHello>,
    ) -> Result<Response<Self::FollowLogsStream>, Status> {
        let peer = peer(&request);
        let node = request.into_inner().node;
        self.check(&peer, &node)?;
        let requests = self.handle.shared.logs.offer(node.clone());
        // It may have been revoked before its offer could end by that.
        self.check(&peer, &node)?;
        let end = self.shutdown.clone().cancelled_owned();
        Ok(Response::new(Box::pin(requests.take_until(end))))
    }

    async fn send_log(
        &self,
        request: Request<Streaming<LogChunk>>,
    ) -> Result<Response<LogEnd>, Status> {
        let peer = peer(&request);
        // Its first message may answer no request: then no node is checked.
        let revocations = &self.handle.shared.revocations;
        let of_any = peer.access.of_any_node(revocations);
        of_any.map_err(|denied| Status::permission_denied(denied.to_string()))?;
        let may_answer = |node: &str| self.check(&peer, node);
        let chunks = request.into_inner();
        let answered = self.handle.shared.logs.answer(chunks, may_answer);
        if let Some(answered) = self.shutdown.run_until_cancelled(answered).await {
            answered?;
        }
        Ok(Response::new(LogEnd {}))
    }
}

impl Service {
    /// Refuses a client whose certificate is not that of the node.
    fn check(&self, peer: &Peer, node: &str) -> Result<(), Status> {
        if node.len() > NAME_MAX {
            let reason = format!("the name of a node has at most {NAME_MAX} bytes");
            return Err(Status::invalid_argument(reason));
        }
        let allowed = peer.access.of_node(node, &self.handle.shared.revocations);
        allowed.map_err(|denied| {
            // Also clients without a certificate get here, as often as they like.
            if let Some(omitted) = self.refusals.lock().next_line() {
                let client = peer.address.map(tracing::field::display);
                warn!(client, node, reason = %denied, omitted, "an agent is refused");
            }
            Status::permission_denied(denied.to_string())
        })
    }
}

/// The client of a call. Without a connection of [`Incoming`], it is in this process.
pub(crate) fn peer<T>(request: &Request<T>) -> Peer {
    request
        .extensions()
        .get::<Peer>()
        .cloned()
        .unwrap_or_default()
}

/// One node's open stream. Dropping it ends the session in the root.
struct OpenStream {
    shared: Arc<Shared>,
    node: String,
    session: Session,
    waker: Arc<Notify>,
    closed: CancellationToken,
}

impl OpenStream {
    async fn open(
        handle: &Handle,
        (mut first, peer): (Up, Peer),
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
        let hello = first.hello.take().unwrap_or_default();
        let (node, closed) = (hello.node.clone(), shutdown.child_token());
        let origin = Origin {
            address: peer.address.map(|address| address.ip()),
            boot_id: hello.boot_id.clone(),
        };
        let opened = shared.step(|guarded, now| {
            // It may have been revoked while the stream waited: from here on, that ends the stream.
            peer.access.of_node(&node, &shared.revocations)?;
            guarded.names.check(&node, &origin)?;
            let claim = claim(&node, hello.status.as_ref())?;
            guarded.claims.check(&node, &claim)?;
            let (opened, settled) = guarded.fleet.hello(hello, now)?;
            guarded.claims.hold(&node, claim);
            // The task of a replaced stream ends itself when it is woken.
            guarded.wake(opened.replaced);
            guarded.wakers.insert(opened.session, Arc::clone(&waker));
            let names = &mut guarded.names;
            names.hold(node.clone(), opened.session, origin, closed.clone());
            permit.send(opened.event);
            Ok((opened.session, settled))
        });
        let (session, settled) = opened.map_err(|refused: Refused| refused.status())?;
        let stream = Arc::new(Self {
            shared,
            node,
            session,
            waker,
            closed,
        });
        let taken = stream.take(first);
        // They are in no table any more, and the node may close the connection while a full channel is awaited here.
        for event in settled.into_iter().chain(taken.settled) {
            stream.shared.emit(Some(event));
        }
        stream
            .send(taken.events)
            .await
            .map_err(|_closed| stopping())?;
        Ok(stream)
    }

    async fn receive(&self, up: Up) -> Result<(), mpsc::error::SendError<Event>> {
        let taken = self.take(up);
        self.send(taken.settled).await?;
        self.send(taken.events).await
    }

    fn take(&self, up: Up) -> Taken {
        let (taken, asks) = self.shared.step(|guarded, now| {
            let taken = guarded.fleet.receive(self.session, up, now);
            (taken, guarded.fleet.root.asks())
        });
        if asks {
            self.shared.wanted.notify_one();
        }
        if taken.wakes {
            self.waker.notify_one();
        }
        taken
    }

    async fn send(&self, events: Vec<Event>) -> Result<(), mpsc::error::SendError<Event>> {
        for event in events {
            self.shared.events.send(event).await?;
        }
        Ok(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.shared.step(|guarded, now| {
            guarded.wakers.remove(&self.session);
            guarded.names.release(&self.node, self.session);
            guarded.fleet.root.end(self.session, now);
        });
    }
}

/// Passes the node's messages to the root until the node closes the stream.
async fn receive_all(stream: Arc<OpenStream>, mut ups: Streaming<Up>) {
    let closed = stream.closed.clone();
    let _end = closed.clone().drop_guard();
    loop {
        let up = tokio::select! {
            () = closed.cancelled() => return,
            up = ups.message() => up,
        };
        let Ok(Some(up)) = up else { return };
        if stream.receive(up).await.is_err() {
            return;
        }
    }
}

/// The next message to the node. Called only when the connection accepts one, so it has the newest versions.
async fn next_down(stream: Arc<OpenStream>) -> Option<(Result<Down, Status>, Arc<OpenStream>)> {
    loop {
        if stream.closed.is_cancelled() {
            return None;
        }
        let next = stream
            .shared
            .state
            .lock()
            .fleet
            .root
            .next(stream.session, Boottime::now());
        match next {
            Next::Send(down) => return Some((Ok(*down), stream)),
            Next::Closed => {
                stream.closed.cancel();
                return None;
            }
            Next::Idle => tokio::select! {
                () = stream.closed.cancelled() => return None,
                () = stream.waker.notified() => {}
            },
            Next::Later(at) => tokio::select! {
                () = stream.closed.cancelled() => return None,
                () = stream.waker.notified() => {}
                () = tokio::time::sleep(at.since(Boottime::now())) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests;

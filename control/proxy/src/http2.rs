//! The HTTP/2 connections to one pod. A response that its client does not read fills its stream's flow-control window;
//! the windows of all streams of a connection fit in the connection's window, so it stops no other response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

use crate::pod_stream::PodStream;
use crate::upload::Upload;

/// Limit of streams of one connection; a pod's lower `SETTINGS_MAX_CONCURRENT_STREAMS` takes precedence.
const STREAMS_MAX: u32 = 64;
/// Flow-control window of a stream: what an unread response holds here, in bytes. At a round-trip time of 1 ms it allows
/// 128 MB/s.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Flow-control window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;
/// Buffer of a stream's request body that the pod does not read, in bytes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Time that a new connection waits for the pod's SETTINGS; a pod that sends none in time gets up to [`STREAMS_MAX`].
const SETTINGS_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval of looking for the SETTINGS.
const SETTINGS_POLL: Duration = Duration::from_millis(1);
/// The limit of streams before the pod's SETTINGS: a number that no pod can send in its 32 bits.
const SETTINGS_PENDING: usize = u32::MAX as usize + 1;
/// Interval of pings on a connection.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// The open connections of one pod.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Set once. Connections that are established later are not listed.
    closed: bool,
    /// The first with a free stream is used, so that surplus connections of a burst reach the idle timeout.
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    sender: http2::SendRequest<Upload>,
    streams: Arc<Streams>,
    used: Instant,
}

/// The streams of one connection.
#[derive(Debug)]
struct Streams {
    open: AtomicUsize,
    max: AtomicUsize,
}

/// One stream of a connection, from before its request to the end of both its bodies.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<Streams>);

/// A stream for one request.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sender: http2::SendRequest<Upload>,
    pub(crate) slot: Arc<StreamSlot>,
}

impl Streams {
    fn take(self: &Arc<Self>) -> Option<Arc<StreamSlot>> {
        let max = self.max.load(Ordering::Relaxed);
        let more = |open| (open < max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Arc::new(StreamSlot(Arc::clone(self))))
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    /// A free stream of an open connection.
    pub(crate) fn take(&self) -> Option<Stream> {
        let mut open = self.0.lock();
        let mut usable = open
            .connections
            .iter_mut()
            .filter(|connection| !connection.sender.is_closed());
        usable.find_map(|connection| {
            let slot = connection.streams.take()?;
            connection.used = Instant::now();
            Some(Stream {
                sender: connection.sender.clone(),
                slot,
            })
        })
    }

    /// Drops connections that the pod has closed or that were idle for `limit`.
    pub(crate) fn expire(&self, limit: Duration) {
        let stays = |connection: &Connection| {
            let idle = connection.streams.open.load(Ordering::Relaxed) == 0;
            let expired = idle && connection.used.elapsed() >= limit;
            !connection.sender.is_closed() && !expired
        };
        self.0.lock().connections.retain(stays);
    }

    /// Closes idle connections now, and others when their streams end.
    pub(crate) fn close(&self) {
        let mut open = self.0.lock();
        open.closed = true;
        open.connections.clear();
    }

    /// A stream of a new connection over `stream`, which `drive` runs.
    pub(crate) async fn establish<D>(&self, stream: PodStream, drive: D) -> hyper::Result<Stream>
    where
        D: FnOnce(std::pin::Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>),
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(SETTINGS_PENDING)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        let (sender, mut connection) = builder.handshake(TokioIo::new(stream)).await?;
        let (known, mut settings) = watch::channel(false);
        let streams = Arc::new(Streams {
            open: AtomicUsize::new(0),
            max: AtomicUsize::new(streams_max(SETTINGS_PENDING)),
        });
        let limits = Arc::clone(&streams);
        // hyper does not poll the connection when the SETTINGS arrive.
        let mut polls = interval(SETTINGS_POLL);
        drive(Box::pin(std::future::poll_fn(move |cx| {
            let ended = std::pin::Pin::new(&mut connection).poll(cx);
            let max = connection.current_max_send_streams();
            if max == SETTINGS_PENDING {
                while polls.poll_tick(cx).is_ready() {}
            } else {
                limits.max.store(streams_max(max), Ordering::Relaxed);
                known.send_if_modified(|known| !std::mem::replace(known, true));
            }
            ended
        })));
        // Errors: too late, or the connection has ended, which the request finds.
        drop(timeout(SETTINGS_TIMEOUT, settings.wait_for(|known| *known)).await);
        let slot = streams.take();
        let slot = slot.unwrap_or_else(|| {
            // The pod allows no stream: the request waits until it does.
            streams.open.fetch_add(1, Ordering::Relaxed);
            Arc::new(StreamSlot(Arc::clone(&streams)))
        });
        let mut open = self.0.lock();
        if !open.closed {
            open.connections.push(Connection {
                sender: sender.clone(),
                streams,
                used: Instant::now(),
            });
        }
        Ok(Stream { sender, slot })
    }
}

/// The limit of streams, of a pod's.
fn streams_max(pods: usize) -> usize {
    usize::try_from(STREAMS_MAX).map_or(pods, |max| max.min(pods))
}

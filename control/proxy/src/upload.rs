//! The body of a forwarded request. Until a part of it has been read it can be sent to another pod.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::http2::StreamSlot;

/// A request's body: the client's, streamed, or none.
#[derive(Debug)]
pub struct Upload {
    body: Option<Arc<Mutex<Received>>>,
    /// The HTTP/2 stream that the body is sent on, which may last longer than the response.
    stream: Option<Arc<StreamSlot>>,
}

/// The client's body.
#[derive(Debug)]
struct Received {
    /// None: moved to the next attempt.
    body: Option<Incoming>,
    /// A part of it, or its end, has been read.
    begun: bool,
}

impl Upload {
    pub(crate) fn new(body: Incoming) -> Self {
        let body = (!body.is_end_stream()).then(|| Received {
            body: Some(body),
            begun: false,
        });
        Self {
            body: body.map(|received| Arc::new(Mutex::new(received))),
            stream: None,
        }
    }

    /// A second reference to the same body, for [`Upload::take_unread`].
    pub(crate) fn share(&self) -> Self {
        Self {
            body: self.body.clone(),
            stream: None,
        }
    }

    /// The body for another attempt, if nothing of it has been read; the other references to it are then at their end.
    pub(crate) fn take_unread(self) -> Option<Self> {
        let Some(shared) = self.body else {
            return Some(self);
        };
        let mut received = shared.lock();
        if received.begun {
            return None;
        }
        received.body.take().map(Self::new)
    }

    /// Keeps `stream` until the body is dropped or released.
    pub(crate) fn hold(&mut self, stream: &Arc<StreamSlot>) {
        self.stream = Some(Arc::clone(stream));
    }

    /// The body is not sent on its stream.
    pub(crate) fn release(&mut self) {
        self.stream = None;
    }

    fn of_body<T>(&self, absent: T, read: impl FnOnce(&Incoming) -> T) -> T {
        let Some(shared) = &self.body else {
            return absent;
        };
        match &shared.lock().body {
            Some(body) => read(body),
            None => absent,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(shared) = &self.body else {
            return Poll::Ready(None);
        };
        let mut received = shared.lock();
        let Some(body) = &mut received.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        received.begun |= polled.is_ready();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.of_body(true, Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.of_body(SizeHint::with_exact(0), Body::size_hint)
    }
}

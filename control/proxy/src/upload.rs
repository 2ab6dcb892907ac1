//! The body of a forwarded request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http2::StreamSlot;

/// A request's body: the client's, streamed, or none in a repeated request.
#[derive(Debug)]
pub struct Upload {
    body: Option<Incoming>,
    /// The HTTP/2 stream that the body is sent on, which may last longer than the response.
    stream: Option<Arc<StreamSlot>>,
}

impl Upload {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body: Some(body),
            stream: None,
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            body: None,
            stream: None,
        }
    }

    /// Keeps `stream` until the body is dropped or released.
    pub(crate) fn hold(&mut self, stream: &Arc<StreamSlot>) {
        self.stream = Some(Arc::clone(stream));
    }

    /// The body is not sent on its stream.
    pub(crate) fn release(&mut self) {
        self.stream = None;
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(empty, Body::size_hint)
    }
}

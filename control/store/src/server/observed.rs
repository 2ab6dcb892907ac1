//! A body whose frames are observed while they pass.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::{Status, body::Body, codegen::Body as HttpBody};

/// An observer of a body's frames.
pub(super) trait Observer: Send + Unpin + 'static {
    /// A frame or the error that ends the body; `None` is the end.
    fn frame(&mut self, frame: Option<&Result<Frame<Bytes>, Status>>);
}

/// The body, observed.
pub(super) fn observed(body: Body, observer: impl Observer) -> Body {
    Body::new(Observed { body, observer })
}

struct Observed<O> {
    body: Body,
    observer: O,
}

impl<O: Observer> HttpBody for Observed<O> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        this.observer.frame(frame.as_ref());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

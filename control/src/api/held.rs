//! The body of a response, with what ends when it does: at its end, or when its client has gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

struct Held<T> {
    body: Body,
    _held: T,
}

/// The body, which drops `held` when it is dropped.
pub(super) fn hold<T: Send + Unpin + 'static>(body: Body, held: T) -> Body {
    Body::new(Held { body, _held: held })
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

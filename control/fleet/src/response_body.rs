//! The body of a response, which is a part of its request until the client has read it, and knows whether it waits for the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

use crate::held;
use crate::idle::OpenRequest;

/// Most bytes of a frame, as of HTTP/2 and TLS: hyper keeps a frame as a whole, however little of it the client takes, and asks for the next
/// one then only.
const FRAME_BYTES_MAX: usize = 16 * 1024;

/// A body that is a part of its request.
///
/// hyper does not poll a body while the client has no room for what it gave, so the body cannot watch the time itself: the connection does
/// ([`crate::idle::Limit`]).
pub(crate) struct Counted {
    body: Body,
    /// What is left of the body's last frame.
    rest: Bytes,
    open: Arc<OpenRequest>,
}

impl Counted {
    pub(crate) fn body(body: Body, open: OpenRequest) -> Body {
        open.unread().begin();
        Body::new(Self {
            body,
            rest: Bytes::new(),
            open: Arc::new(open),
        })
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.open.unread().end();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        self.open.unread().begin();
        let length = self.rest.len().min(FRAME_BYTES_MAX);
        let mut bytes = self.rest.split_to(length);
        if self.rest.is_empty() {
            // hyper may keep the last part without the body: all memory of the frame would stay with it.
            bytes = Bytes::copy_from_slice(&bytes);
        }
        // It may wait for the client when the body has ended: the request ends with the last part.
        let part = held::part(bytes, &self.open);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, StreamExt, channel::mpsc};

    use super::*;
    use crate::idle::Requests;

    #[tokio::test]
    async fn a_body_waits_for_its_client_except_while_it_has_nothing() {
        let (events, stream) = mpsc::unbounded::<Result<Bytes, Infallible>>();
        let open = Requests::new().begin();
        let unread = Arc::clone(open.unread());
        let mut frames = Counted::body(Body::from_stream(stream), open).into_data_stream();
        assert!(unread.is_begun(), "not asked for anything yet");
        assert_eq!(frames.next().now_or_never().map(drop), None);
        assert!(!unread.is_begun(), "has nothing");
        events.unbounded_send(Ok(Bytes::from_static(b"a"))).unwrap();
        assert_eq!(frames.next().await.unwrap().unwrap(), "a");
        assert!(unread.is_begun(), "the frame is not known to be read");
        assert_eq!(frames.next().now_or_never().map(drop), None);
        assert!(!unread.is_begun(), "it was read");
    }

    #[tokio::test]
    async fn a_request_is_open_until_its_last_part_is_sent() {
        let requests = Requests::new();
        let mut parts = Counted::body(Body::from("text"), requests.begin()).into_data_stream();
        let part = parts.next().await.unwrap().unwrap();
        assert!(parts.next().await.is_none());
        drop(parts);
        assert!(requests.is_any_open());
        drop(part);
        assert!(!requests.is_any_open());
    }

    #[tokio::test]
    async fn a_large_frame_is_taken_in_parts() {
        let bytes = Bytes::from(vec![7; 2 * FRAME_BYTES_MAX + 1]);
        let body = Counted::body(Body::from(bytes.clone()), Requests::new().begin());
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let parts: Vec<Bytes> = body.into_data_stream().map(Result::unwrap).collect().await;
        let lengths: Vec<usize> = parts.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [FRAME_BYTES_MAX, FRAME_BYTES_MAX, 1]);
        assert_eq!(parts.concat(), bytes);
    }
}

//! The body of a relayed response: streamed, with the request's deadline, and with an action at its end.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::backend::Upstream;

/// Errors of a response's body. The client gets a reset, never a shortened body that looks complete.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The backend's connection failed.
    #[error("the backend's response ended early")]
    Backend(#[source] hyper::Error),
    /// The request's deadline passed.
    #[error("the response was not complete at the request's deadline")]
    Deadline,
}

/// A backend's response body. `G` is dropped when it has ended or is dropped itself.
#[derive(Debug)]
pub struct Relayed<G: Send + 'static> {
    body: Incoming,
    deadline: Instant,
    /// The deadline's timer. Created at the first wait for data, which most small bodies never have.
    timer: Option<Pin<Box<Sleep>>>,
    exchange: Option<(Upstream, G)>,
}

impl<G: Send + Unpin + 'static> Relayed<G> {
    pub(crate) fn new(body: Incoming, upstream: Upstream, deadline: Instant, guard: G) -> Self {
        let exchange = Some((upstream, guard));
        let mut relayed = Self {
            body,
            deadline,
            timer: None,
            exchange,
        };
        relayed.complete_at_end();
        relayed
    }

    /// The body of a response `101 Switching Protocols`.
    pub(crate) fn empty(body: Incoming) -> Self {
        Self {
            body,
            deadline: Instant::now(),
            timer: None,
            exchange: None,
        }
    }

    fn complete_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.complete();
        }
    }

    fn complete(&mut self) {
        if let Some((upstream, guard)) = self.exchange.take() {
            upstream.complete(self.deadline, guard);
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.exchange.is_none() {
            return Poll::Pending;
        }
        let deadline = self.deadline;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        timer.as_mut().poll(cx)
    }
}

impl<G: Send + Unpin + 'static> Body for Relayed<G> {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let relayed = self.get_mut();
        match Pin::new(&mut relayed.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                // hyper does not poll a body of known length again after its last byte.
                relayed.complete_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                relayed.exchange = None;
                Poll::Ready(Some(Err(RelayError::Backend(error))))
            }
            Poll::Ready(None) => {
                relayed.complete();
                Poll::Ready(None)
            }
            Poll::Pending if relayed.poll_deadline(cx).is_ready() => {
                relayed.exchange = None;
                Poll::Ready(Some(Err(RelayError::Deadline)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

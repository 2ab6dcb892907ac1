//! The body of a response, with what ends when the client has read it, or has gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

struct Held<T> {
    body: Body,
    held: Arc<T>,
}

/// Bytes of the body: they may wait for the client when the body has ended.
struct Part<T> {
    bytes: Bytes,
    _of: Arc<T>,
}

/// The body, which drops `held` when it and all of its parts are dropped.
pub fn hold<T: Send + Sync + 'static>(body: Body, held: T) -> Body {
    let held = Arc::new(held);
    Body::new(Held { body, held })
}

/// Bytes that keep `held`.
pub(crate) fn part<T: Send + Sync + 'static>(bytes: Bytes, held: &Arc<T>) -> Bytes {
    Bytes::from_owner(Part {
        bytes,
        _of: Arc::clone(held),
    })
}

impl<T: Send + Sync + 'static> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let of_it = |bytes| part(bytes, &self.held);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(of_it))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<T> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn what_is_held_outlives_the_body_with_its_parts() {
        let held = Arc::new(());
        let mut parts = hold(Body::from("text"), Arc::clone(&held)).into_data_stream();
        let part = parts.next().await.unwrap().unwrap();
        assert_eq!(part, "text");
        assert!(parts.next().await.is_none());
        drop(parts);
        let slice = part.slice(1..);
        drop(part);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(slice);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

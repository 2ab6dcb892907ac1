//! The body of a request, which has to come in time: a client that sends it slowly would keep its connection, and what the request holds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::Frame;
use tokio::time::{Sleep, sleep};

/// Time in which a body comes as a whole: the largest one, of 3 MiB, at a megabit per second.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// A body that fails when it has not come in time.
pub(crate) struct Timed {
    body: Body,
    timer: Pin<Box<Sleep>>,
}

impl Timed {
    /// The body as it is if it has come, or there is none.
    pub(crate) fn limit(body: Body, longest: Duration) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let timer = Box::pin(sleep(longest));
        Body::new(Self { body, timer })
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.timer.as_mut().poll(cx).map(|()| {
            let late = "the body of the request did not come in time";
            Some(Err(axum::Error::new(late)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;

    const LONGEST: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_body_that_comes_slowly_fails_and_one_in_time_does_not() {
        let every = |pause| {
            let bytes = stream::iter(0..10).then(move |_| async move {
                sleep(pause).await;
                Ok::<_, std::io::Error>("a")
            });
            Timed::limit(Body::from_stream(bytes), LONGEST)
        };
        let read = async |body| axum::body::to_bytes(body, usize::MAX).await;
        let quick = read(every(Duration::ZERO)).await.unwrap();
        assert_eq!(quick.len(), 10);
        let slow = read(every(LONGEST / 4)).await.unwrap_err();
        assert!(slow.to_string().contains("in time"), "{slow}");
        let silent = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert!(read(Timed::limit(silent, LONGEST)).await.is_err());
    }
}

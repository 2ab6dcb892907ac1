//! The responses of one watch stream as the transport polls them. A client that does not read has no
//! more in memory than one page.

use std::sync::Arc;

use futures::{Stream, stream};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::watches::Watches;
use crate::{
    proto::etcdserverpb::{WatchRequest, WatchResponse},
    watch::ReadySet,
};

struct WatchStream {
    watches: Watches,
    ready_set: Arc<ReadySet>,
    requests: Streaming<WatchRequest>,
    /// A client that only half-closes the stream still gets events.
    requests_open: bool,
    /// The progress interval.
    ticks: Interval,
    shutdown: CancellationToken,
}

/// The responses, until the client closes the stream or the server shuts down.
pub(super) fn responses(
    watches: Watches,
    requests: Streaming<WatchRequest>,
    shutdown: CancellationToken,
) -> impl Stream<Item = Result<WatchResponse, Status>> {
    let mut ticks = tokio::time::interval(watches.progress_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let state = Box::new(WatchStream {
        ready_set: watches.ready_set(),
        watches,
        requests,
        requests_open: true,
        ticks,
        shutdown,
    });
    stream::unfold(state, async |mut state| {
        let response = state.next().await?;
        Some((response, state))
    })
}

impl WatchStream {
    /// The next response; the error of a request ends the stream.
    async fn next(&mut self) -> Option<Result<WatchResponse, Status>> {
        loop {
            if let Some(response) = self.watches.pop() {
                return Some(Ok(response));
            }
            let more = self.watches.has_more();
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                request = self.requests.message(), if self.requests_open => match request {
                    Ok(Some(request)) => self.watches.request(request),
                    Ok(None) => self.requests_open = false,
                    Err(error) => return Some(Err(error)),
                },
                () = self.ready_set.woken() => {}
                () = std::future::ready(()), if more => {}
                _ = self.ticks.tick() => self.watches.notify_progress(),
            }
            self.watches.read();
        }
    }
}

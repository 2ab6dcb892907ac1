//! etcd's Watch service: one task for each stream, which owns the stream's watchers and reads their
//! events at the pace of the client.

mod response;
mod stream;
mod watcher;

use std::pin::Pin;

use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::guard;
use crate::{
    Store,
    proto::etcdserverpb::{WatchRequest, WatchResponse, watch_server::Watch},
};
use stream::WatchStream;

/// Responses queued for the transport per stream; a full queue blocks the stream's task. Together with
/// a page it bounds the memory of a stream whose client does not read.
const RESPONSES_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct Service {
    store: Store,
    shutdown: CancellationToken,
}

impl Service {
    pub(super) fn new(store: Store, shutdown: CancellationToken) -> Self {
        Self { store, shutdown }
    }
}

type Responses = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Responses;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let (out, responses) = tokio::sync::mpsc::channel(RESPONSES_MAX);
        let credentials = guard::of_request(&request);
        let stream = WatchStream::new(self.store.clone(), credentials, out);
        let run = stream.run(request.into_inner());
        tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(run));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

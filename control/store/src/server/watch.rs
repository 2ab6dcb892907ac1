//! etcd's Watch service: one task for each stream, which owns its watches and reads history for
//! them at the pace of its client.

mod answer;
mod session;
mod watcher;

use std::pin::Pin;

use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    Store,
    proto::etcdserverpb::{WatchRequest, WatchResponse, watch_server::Watch},
};
use session::Session;

/// Responses ready but not yet taken by the transport; then the stream's task waits.
const RESPONSES_MAX: usize = 4;

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
        let session = Session::new(self.store.clone(), out);
        let run = session.run(request.into_inner());
        tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(run));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

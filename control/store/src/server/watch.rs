//! etcd's Watch service: each stream of responses owns its watchers and reads their events when the
//! transport asks for a response, so at the pace of the client.

mod response;
mod stream;
mod watcher;
mod watches;

use std::pin::Pin;

use futures::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::guard;
use crate::{
    Store,
    proto::etcdserverpb::{WatchRequest, WatchResponse, watch_server::Watch},
};
use watches::Watches;

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
        let credentials = guard::of_request(&request);
        let watches = Watches::new(self.store.clone(), credentials);
        let responses = stream::responses(watches, request.into_inner(), self.shutdown.clone());
        Ok(Response::new(Box::pin(responses)))
    }
}

//! etcd's KV service.

pub(super) mod page;
mod stream;

use std::pin::Pin;

use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::session::Session;
use crate::{
    Store,
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
        kv_server::Kv,
    },
};

#[derive(Debug)]
pub(super) struct Service {
    store: Store,
}

impl Service {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

#[tonic::async_trait]
impl Kv for Service {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let answer = Session::new(&self.store, &request)
            .range(request.get_ref())
            .await?;
        page::response(answer)
    }

    type RangeStreamStream =
        Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let parts = stream::start(&self.store, request)?;
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let response = Session::new(&self.store, &request)
            .put(request.get_ref())
            .await?;
        Ok(Response::new(response))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let response = Session::new(&self.store, &request)
            .delete_range(request.get_ref())
            .await?;
        Ok(Response::new(response))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let response = Session::new(&self.store, &request)
            .txn(request.get_ref())
            .await?;
        Ok(Response::new(response))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let response = Session::new(&self.store, &request)
            .compact(request.get_ref())
            .await?;
        Ok(Response::new(response))
    }
}

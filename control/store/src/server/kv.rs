//! etcd's KV service.

use tonic::{Request, Response, Status};

use crate::{
    Store,
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, kv_server::Kv,
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
        Ok(Response::new(self.store.range(request.get_ref())?))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        Ok(Response::new(self.store.put(request.get_ref())?))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        Ok(Response::new(self.store.delete_range(request.get_ref())?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        Ok(Response::new(self.store.txn(request.get_ref())?))
    }

    /// Compaction completes before the response, with or without `physical`.
    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let revision = self.store.compact(request.get_ref().revision)?;
        let header = Some(self.store.header(revision));
        Ok(Response::new(CompactionResponse { header }))
    }
}

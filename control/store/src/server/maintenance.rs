//! etcd's Maintenance service: the status of the server.

use tonic::{Request, Response, Status};

use crate::{
    Store,
    proto::etcdserverpb::{
        DowngradeInfo, StatusRequest, StatusResponse, maintenance_server::Maintenance,
    },
};

/// The version of etcd's API that the store implements. kube-apiserver uses progress requests of
/// watches only from certain etcd versions on.
const API_VERSION: &str = "3.6.0";

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
impl Maintenance for Service {
    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let header = self.store.header(self.store.revision());
        let bytes = i64::try_from(self.store.bytes()).unwrap_or(i64::MAX);
        let quota = self.store.limits().quota_bytes;
        Ok(Response::new(StatusResponse {
            version: API_VERSION.into(),
            db_size: bytes,
            db_size_in_use: bytes,
            db_size_quota: i64::try_from(quota).unwrap_or(i64::MAX),
            leader: header.member_id,
            raft_index: header.revision.unsigned_abs(),
            raft_applied_index: header.revision.unsigned_abs(),
            raft_term: header.raft_term,
            downgrade_info: Some(DowngradeInfo::default()),
            header: Some(header),
            ..StatusResponse::default()
        }))
    }
}

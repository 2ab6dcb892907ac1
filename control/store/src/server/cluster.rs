//! etcd's Cluster service: a cluster of one member.

use std::net::SocketAddr;

use tonic::{Request, Response, Status};

use crate::{
    Store,
    proto::etcdserverpb::{Member, MemberListRequest, MemberListResponse, cluster_server::Cluster},
};

#[derive(Debug)]
pub(super) struct Service {
    store: Store,
    address: SocketAddr,
}

impl Service {
    pub(super) fn new(store: Store, address: SocketAddr) -> Self {
        Self { store, address }
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn member_list(
        &self,
        _request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        // As in etcd, the header of this response has no revision.
        let header = self.store.header(0);
        let member = Member {
            id: header.member_id,
            name: "dormouse".into(),
            client_ur_ls: vec![format!("http://{}", self.address)],
            ..Member::default()
        };
        Ok(Response::new(MemberListResponse {
            header: Some(header),
            members: vec![member],
        }))
    }
}

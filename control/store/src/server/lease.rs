//! etcd's Lease service.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{guard, session::Session};
use crate::{
    Store,
    auth::Right,
    lease::LeaseId,
    proto::etcdserverpb::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
        LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse,
        LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, lease_server::Lease,
    },
};

/// Keep-alive responses queued per stream; a full queue delays the client's further keep-alives.
const RESPONSES_MAX: usize = 16;

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

fn keep_alive(
    store: &Store,
    session: &Session<'_>,
    id: LeaseId,
) -> Result<LeaseKeepAliveResponse, Status> {
    session.check_leases(Right::Write, &[id])?;
    let (ttl, revision) = store.lease_renew(id);
    let header = Some(store.header(revision));
    Ok(LeaseKeepAliveResponse { header, id, ttl })
}

type Responses = Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Lease for Service {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let request = request.get_ref();
        let (id, ttl, revision) = self.store.lease_grant(request.id, request.ttl).await?;
        let header = Some(self.store.header(revision));
        Ok(Response::new(LeaseGrantResponse {
            header,
            id,
            ttl,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let id = request.get_ref().id;
        let revision = Session::new(&self.store, &request).lease_revoke(id).await?;
        let header = Some(self.store.header(revision));
        Ok(Response::new(LeaseRevokeResponse { header }))
    }

    type LeaseKeepAliveStream = Responses;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let (responses, stream) = tokio::sync::mpsc::channel(RESPONSES_MAX);
        let (store, shutdown) = (self.store.clone(), self.shutdown.clone());
        let credentials = guard::of_request(&request);
        let mut requests = request.into_inner();
        let keep_alives = async move {
            while let Some(request) = requests.next().await {
                let session = Session::of_stream(&store, &credentials);
                let response = request.and_then(|request| keep_alive(&store, &session, request.id));
                let ended = response.is_err();
                if responses.send(response).await.is_err() || ended {
                    return;
                }
            }
        };
        tokio::spawn(shutdown.run_until_cancelled_owned(keep_alives));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let session = Session::new(&self.store, &request);
        let request = request.get_ref();
        if request.keys {
            session.check_leases(Right::Read, &[request.id])?;
        }
        let (remaining, revision) = self.store.lease_time_to_live(request.id);
        let mut response = LeaseTimeToLiveResponse {
            header: Some(self.store.header(revision)),
            id: request.id,
            ttl: -1,
            ..LeaseTimeToLiveResponse::default()
        };
        if let Some(remaining) = remaining {
            response.ttl = remaining.ttl_s;
            response.granted_ttl = remaining.granted_ttl_s;
            if request.keys {
                response.keys = remaining.keys;
            }
        }
        Ok(Response::new(response))
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let (leases, revision) = self.store.leases().await;
        Session::new(&self.store, &request).check_leases(Right::Read, &leases)?;
        let header = Some(self.store.header(revision));
        let leases = leases.into_iter().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header, leases }))
    }
}

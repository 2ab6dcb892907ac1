//! etcd's Election service.

mod campaign;
mod observe;

use std::pin::Pin;

use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::{
    Service,
    client::{Client, first},
    queue::Queue,
    unknown,
};
use crate::proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse, election_server::Election,
};

/// Changes of the leader queued per observer; a full queue delays the reading of further ones.
const RESPONSES_MAX: usize = 16;

/// The leadership that a request names.
fn leadership(leader: Option<LeaderKey>) -> Result<LeaderKey, Status> {
    leader.ok_or_else(|| Status::unknown("\"leader\" field must be provided"))
}

async fn leader(client: &Client, name: &[u8]) -> Result<LeaderResponse, Status> {
    let mut found = client.range(Queue::new(name).oldest()).await?;
    let header = found.header.take();
    match first(found) {
        Some(kv) => Ok(LeaderResponse {
            header,
            kv: Some(kv),
        }),
        None => Err(Status::unknown("election: no leader")),
    }
}

#[tonic::async_trait]
impl Election for Service {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let client = self.client(&request);
        let won = campaign::run(client.clone(), request.into_inner());
        let won = client.until_shutdown(won).await;
        won.map(Response::new).map_err(|error| unknown(&error))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let client = self.client(&request);
        let ProclaimRequest { leader, value } = request.into_inner();
        let mut leader = leadership(leader)?;
        let lease = client.lease(leader.lease).await;
        leader.lease = lease.map_err(|error| unknown(&error))?;
        let proclaimed = campaign::proclaim(&client, leader, value).await;
        let header = proclaimed.map_err(|error| unknown(&error))?;
        Ok(Response::new(ProclaimResponse { header }))
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        let found = leader(&self.client(&request), &request.get_ref().name).await;
        found.map(Response::new).map_err(|error| unknown(&error))
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<LeaderResponse, Status>> + Send>>;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let client = self.client(&request);
        let queue = Queue::new(&request.get_ref().name);
        let (out, responses) = tokio::sync::mpsc::channel(RESPONSES_MAX);
        tokio::spawn(observe::run(client, queue, out));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let client = self.client(&request);
        let leader = leadership(request.into_inner().leader)?;
        let resigned = campaign::resign(&client, leader).await;
        let header = resigned.map_err(|error| unknown(&error))?;
        Ok(Response::new(ResignResponse { header }))
    }
}

//! A campaign, and what the leader may do: proclaim another value, resign.

use bytes::Bytes;
use tonic::Status;

use crate::{
    proto::{
        etcdserverpb::ResponseHeader,
        v3electionpb::{CampaignRequest, CampaignResponse, LeaderKey},
    },
    server::concurrency::{
        client::{Client, delete, put},
        queue::{Place, Queue},
    },
};

/// Waits until the client is the leader. The header is that of the transaction that entered the
/// queue, as in etcd.
pub(super) async fn run(
    client: Client,
    request: CampaignRequest,
) -> Result<CampaignResponse, Status> {
    let CampaignRequest { name, lease, value } = request;
    let lease = client.lease(lease).await?;
    let queue = Queue::new(&name);
    let (place, entered) = Place::enter(client.clone(), queue, lease, value.clone()).await?;
    let leader = LeaderKey {
        name,
        key: place.key.clone(),
        rev: place.created,
        lease,
    };
    if entered
        .before
        .is_some_and(|before| before.fields().value != value)
    {
        proclaim(&client, leader.clone(), value).await?;
    }
    place.turn().await?;
    place.keep();
    Ok(CampaignResponse {
        header: entered.header,
        leader: Some(leader),
    })
}

/// Changes the value of a leader that is still in the queue.
pub(super) async fn proclaim(
    client: &Client,
    leader: LeaderKey,
    value: Bytes,
) -> Result<Option<ResponseHeader>, Status> {
    let own = (leader.key.clone(), leader.rev);
    let change = vec![put(leader.key, value, leader.lease)];
    let response = client.if_created_at(own, change, Vec::new()).await?;
    if response.succeeded {
        Ok(response.header)
    } else {
        Err(Status::unknown("election: not leader"))
    }
}

/// Deletes the key of a leader, if it still exists.
pub(super) async fn resign(
    client: &Client,
    leader: LeaderKey,
) -> Result<Option<ResponseHeader>, Status> {
    let own = (leader.key.clone(), leader.rev);
    let gone = vec![delete(leader.key)];
    let response = client.if_created_at(own, gone, Vec::new()).await?;
    Ok(response.header)
}

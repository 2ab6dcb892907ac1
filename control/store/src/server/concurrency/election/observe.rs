//! The stream of an observer: the leader of an election, and its changes.

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tonic::Status;

use crate::{
    keyspace::{KeyRange, Revision},
    proto::v3electionpb::LeaderResponse,
    server::concurrency::{
        client::{Client, first, revision},
        follow::Follow,
        queue::Queue,
        unknown,
    },
    wire::{Event, KeyValue},
};

type Responses = Sender<Result<LeaderResponse, Status>>;

/// Sends the leader and its changes until the observer closes the stream or the server ends.
pub(super) async fn run(client: Client, queue: Queue, out: Responses) {
    let observed = client.until_shutdown(observe(&client, &queue, &out));
    let ended = tokio::select! {
        () = out.closed() => return,
        ended = observed => ended,
    };
    if let Err(error) = ended {
        // An observer that is gone needs no status.
        drop(out.send(Err(unknown(&error))).await);
    }
}

async fn observe(client: &Client, queue: &Queue, out: &Responses) -> Result<(), Status> {
    loop {
        let (now, leader) = leader(client, queue).await?;
        let key = Bytes::copy_from_slice(leader.fields().key);
        if send(client, out, now, leader).await.is_err() {
            return Ok(());
        }
        let mut follow = Follow::new(client, KeyRange::One(key), now + 1)?;
        let mut leads = true;
        while leads {
            for event in follow.next().await? {
                if event.is_delete() {
                    leads = false;
                    break;
                }
                let (now, leader) = put(&event);
                if send(client, out, now, leader).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// The leader, with the revision at which it was read; waits for the first one.
async fn leader(client: &Client, queue: &Queue) -> Result<(Revision, KeyValue), Status> {
    let found = client.range(queue.oldest()).await?;
    let now = revision(&found);
    if let Some(leader) = first(found) {
        return Ok((now, leader));
    }
    let mut follow = Follow::new(client, queue.range(), now + 1)?;
    loop {
        let events = follow.next().await?;
        if let Some(event) = events.iter().find(|event| !event.is_delete()) {
            return Ok(put(event));
        }
    }
}

/// The revision and the key of a put.
fn put(event: &Event) -> (Revision, KeyValue) {
    (event.kv().mod_revision, event.kv_message())
}

/// The observer closed the stream.
struct Gone;

async fn send(
    client: &Client,
    out: &Responses,
    revision: Revision,
    leader: KeyValue,
) -> Result<(), Gone> {
    let response = LeaderResponse {
        header: Some(client.store.header(revision)),
        kv: Some(leader),
    };
    out.send(Ok(response)).await.map_err(|_closed| Gone)
}

//! etcd's Lock service.

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::{
    Service,
    client::{Client, get},
    queue::{Place, Queue},
    unknown,
};
use crate::proto::{
    etcdserverpb::DeleteRangeRequest,
    v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse, lock_server::Lock},
};

/// Waits for the lock, and returns its key.
async fn lock(client: Client, request: &LockRequest) -> Result<LockResponse, Status> {
    let lease = client.lease(request.lease).await?;
    let queue = Queue::new(&request.name);
    let (place, entered) = Place::enter(client.clone(), queue, lease, Bytes::new()).await?;
    let mut header = entered.header;
    if place.turn().await? {
        // The lease may have expired in the meantime.
        let own = client.range(get(place.key.clone())).await?;
        if own.kvs.is_empty() {
            return Err(Status::unknown("mutex: session is expired"));
        }
        header = own.header;
    }
    let key = place.keep();
    Ok(LockResponse { header, key })
}

#[tonic::async_trait]
impl Lock for Service {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let client = self.client(&request);
        let locked = lock(client.clone(), request.get_ref());
        let locked = client.until_shutdown(locked).await;
        locked.map(Response::new).map_err(|error| unknown(&error))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let client = self.client(&request);
        let key = DeleteRangeRequest {
            key: request.into_inner().key,
            ..DeleteRangeRequest::default()
        };
        let deleted = client.session().delete_range(&key).await;
        let header = deleted.map_err(|error| unknown(&error))?.header;
        Ok(Response::new(UnlockResponse { header }))
    }
}

//! One client of a lock or an election: its requests to the store, with its permissions.

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use crate::{
    Store,
    auth::Credentials,
    keyspace::Revision,
    lease::LeaseId,
    proto::etcdserverpb::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp,
        TxnRequest, TxnResponse,
        compare::{CompareTarget, TargetUnion},
        request_op::Request as Operation,
    },
    server::{guard, session::Session},
    wire::KeyValue,
};

/// TTL of a lease that is granted for a request without one; etcd's default of a session.
const LEASE_TTL_S: i64 = 60;

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) store: Store,
    credentials: Credentials,
    shutdown: CancellationToken,
}

impl Client {
    pub(super) fn new<T>(
        store: &Store,
        shutdown: &CancellationToken,
        request: &Request<T>,
    ) -> Self {
        Self {
            store: store.clone(),
            credentials: guard::of_request(request),
            shutdown: shutdown.clone(),
        }
    }

    pub(super) fn session(&self) -> Session<'_> {
        Session::of_stream(&self.store, &self.credentials)
    }

    /// The lease of a request; a new one if the request names none.
    pub(super) async fn lease(&self, id: LeaseId) -> Result<LeaseId, Status> {
        if id != 0 {
            return Ok(id);
        }
        self.session().check_user()?;
        let (id, _, _) = self.store.lease_grant(0, LEASE_TTL_S).await?;
        Ok(id)
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        Ok(self.session().range(&request).await?.into())
    }

    /// Runs operations if a key was created at a revision (0: does not exist), others if not.
    pub(super) async fn if_created_at(
        &self,
        (key, created): (Bytes, Revision),
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<TxnResponse, Status> {
        let compare = Compare {
            target: CompareTarget::Create.into(),
            key,
            target_union: Some(TargetUnion::CreateRevision(created)),
            ..Compare::default()
        };
        let request = TxnRequest {
            compare: vec![compare],
            success,
            failure,
        };
        self.session().txn(&request).await
    }

    /// Waits for a result, but not beyond the end of the server.
    pub(super) async fn until_shutdown<R>(
        &self,
        result: impl Future<Output = Result<R, Status>>,
    ) -> Result<R, Status> {
        tokio::select! {
            () = self.shutdown.cancelled() => {
                Err(Status::unavailable("etcdserver: server stopped"))
            }
            result = result => result,
        }
    }
}

pub(super) fn get(key: Bytes) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

pub(super) fn read(request: RangeRequest) -> RequestOp {
    RequestOp {
        request: Some(Operation::RequestRange(request)),
    }
}

pub(super) fn put(key: Bytes, value: Bytes, lease: LeaseId) -> RequestOp {
    let request = PutRequest {
        key,
        value,
        lease,
        ..PutRequest::default()
    };
    RequestOp {
        request: Some(Operation::RequestPut(request)),
    }
}

pub(super) fn delete(key: Bytes) -> RequestOp {
    let request = DeleteRangeRequest {
        key,
        ..DeleteRangeRequest::default()
    };
    RequestOp {
        request: Some(Operation::RequestDeleteRange(request)),
    }
}

/// The revision of a response.
pub(super) fn revision(response: &RangeResponse) -> Revision {
    response.header.as_ref().map_or(0, |header| header.revision)
}

/// The first pair of a response.
pub(super) fn first(response: RangeResponse) -> Option<KeyValue> {
    response.kvs.into_iter().next()
}

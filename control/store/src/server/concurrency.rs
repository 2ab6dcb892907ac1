//! etcd's Lock and Election services. Both keep a queue of keys below a name, each with the lease of
//! its client: the client of the oldest key holds the lock, or is the leader.

mod client;
mod election;
mod follow;
mod lock;
mod queue;

use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use crate::Store;
use client::Client;

/// Both services.
#[derive(Clone, Debug)]
pub(super) struct Service {
    store: Store,
    shutdown: CancellationToken,
}

impl Service {
    pub(super) fn new(store: Store, shutdown: CancellationToken) -> Self {
        Self { store, shutdown }
    }

    /// The client of a request.
    fn client<T>(&self, request: &Request<T>) -> Client {
        Client::new(&self.store, &self.shutdown, request)
    }
}

/// As in etcd, errors of these services have no code of their own.
fn unknown(inner: &Status) -> Status {
    Status::unknown(inner.message())
}

//! etcd's Lock and Election services. Both keep a queue of keys below a name, each with the lease of
//! its client: the client of the oldest key holds the lock, or is the leader.

mod client;
mod election;
mod follow;
mod lock;
mod queue;

pub(super) use election::Service as Election;
pub(super) use lock::Service as Lock;

use tonic::Status;

/// As in etcd, errors of these services have no code of their own.
fn unknown(inner: &Status) -> Status {
    Status::unknown(inner.message())
}

//! Errors of the store's client.

use std::{sync::Arc, time::Duration};

/// An error of a read, write or watch.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The object exists already.
    #[error("`{path}` exists already")]
    AlreadyExists {
        /// Its key.
        path: String,
    },
    /// The object does not exist.
    #[error("`{path}` does not exist")]
    NotFound {
        /// Its key.
        path: String,
    },
    /// Another client wrote the object first.
    #[error("`{path}` was changed by another client")]
    Conflict {
        /// Its key.
        path: String,
    },
    /// The client's fence does not hold any more, see [`Client::fenced`](crate::Client::fenced).
    #[error("`{path}` is not written: another process has taken over")]
    Fenced {
        /// Its key.
        path: String,
    },
    /// The value is not an object of the key's kind.
    #[error("value of `{path}` cannot be decoded")]
    Malformed {
        /// Its key.
        path: String,
        /// The decoder's error.
        source: serde_json::Error,
    },
    /// The requested revision is compacted.
    #[error("the requested revision is compacted, the oldest available one is {oldest}")]
    Compacted {
        /// The compacted revision, the oldest that can be watched.
        oldest: u64,
    },
    /// A revision to read at is compacted, or the store has not reached it.
    #[error("the store has no revision {revision}")]
    NoSuchRevision {
        /// The revision.
        revision: u64,
    },
    /// The store's revision is below one that was read before: it was restarted empty, or restored
    /// from a backup.
    #[error(
        "the store's revision went back from {known} to {found}: it was restarted empty or restored from a backup"
    )]
    RevisionRegressed {
        /// The newest revision that was read.
        known: u64,
        /// The store's current revision.
        found: u64,
    },
    /// The connection to the store failed.
    #[error("cannot reach the store")]
    Unreachable(#[source] Arc<etcd_client::Error>),
    /// The store did not respond in time.
    #[error("the store did not respond within {after:?}")]
    Timeout {
        /// The timeout.
        after: Duration,
    },
    /// The store refused the request.
    #[error("the store refused the request")]
    Refused(#[source] Arc<etcd_client::Error>),
}

impl From<etcd_client::Error> for ClientError {
    fn from(error: etcd_client::Error) -> Self {
        Self::from(Arc::new(error))
    }
}

impl From<Arc<etcd_client::Error>> for ClientError {
    fn from(error: Arc<etcd_client::Error>) -> Self {
        if is_refusal(&error) {
            Self::Refused(error)
        } else {
            Self::Unreachable(error)
        }
    }
}

/// Whether the store refused to read at a revision, which is compacted or of the future.
pub(super) fn is_of_revision(error: &ClientError) -> bool {
    let ClientError::Refused(error) = error else {
        return false;
    };
    matches!(&**error, etcd_client::Error::GRpcStatus(status) if status.code() == tonic::Code::OutOfRange)
}

/// Whether the error is a response of the store; the other ones are failures of the connection.
pub(super) fn is_refusal(error: &etcd_client::Error) -> bool {
    use tonic::Code;
    let etcd_client::Error::GRpcStatus(status) = error else {
        return false;
    };
    !matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
    )
}

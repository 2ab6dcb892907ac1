//! Why the store did not do what it was asked.

use std::time::Duration;

/// Why a read or write of the store failed.
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
    /// Somebody wrote the object first, or another condition did not hold.
    #[error("`{path}` was changed by somebody else")]
    Conflict {
        /// Its key.
        path: String,
    },
    /// The value is not an object of the kind its key promises.
    #[error("value of `{path}` cannot be read")]
    Malformed {
        /// Its key.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The asked revision is no longer kept.
    #[error("changes since the asked revision are no longer kept, the oldest is {oldest}")]
    Compacted {
        /// The oldest revision still known.
        oldest: u64,
    },
    /// The store forgot what was read from it: it began anew, or from an older copy.
    #[error(
        "the store is at revision {found}, but was at {known} before: it has lost what was written since"
    )]
    WentBack {
        /// The newest revision that was read.
        known: u64,
        /// The store's revision now.
        found: u64,
    },
    /// The store is not there.
    #[error("cannot reach the store")]
    Unreachable(#[source] Box<etcd_client::Error>),
    /// The store took the request and stayed silent.
    #[error("the store did not answer within {after:?}")]
    Silent {
        /// How long was waited.
        after: Duration,
    },
    /// The store refused the request.
    #[error("the store refused the request")]
    Refused(#[source] Box<etcd_client::Error>),
}

impl From<etcd_client::Error> for ClientError {
    fn from(error: etcd_client::Error) -> Self {
        match &error {
            etcd_client::Error::GRpcStatus(status) if is_refusal(status) => {
                Self::Refused(Box::new(error))
            }
            _ => Self::Unreachable(Box::new(error)),
        }
    }
}

/// Whether the store itself answered: connection failures arrive as the codes left out here.
fn is_refusal(status: &tonic::Status) -> bool {
    use tonic::Code;
    !matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
    )
}

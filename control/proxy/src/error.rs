//! Errors of a forwarded request.

use std::io;
use std::net::SocketAddrV6;
use std::time::Duration;

use crate::outbound::Outbound;

/// Why a request was not forwarded, or got no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The connection was refused or failed.
    #[error("failed to connect to {backend}")]
    Connect {
        /// The backend's address.
        backend: SocketAddrV6,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The connection was not established in time.
    #[error("failed to connect to {backend} within {limit:?}")]
    ConnectTimeout {
        /// The backend's address.
        backend: SocketAddrV6,
        /// The connect timeout.
        limit: Duration,
    },
    /// All connections that the process may have to backends are in use.
    #[error("failed to connect to {backend}: too many connections to backends are open")]
    ConnectionLimit {
        /// The backend's address.
        backend: SocketAddrV6,
    },
    /// The connection failed before the response's head was complete.
    #[error("lost the connection to {backend} before its response")]
    Lost {
        /// The backend's address.
        backend: SocketAddrV6,
        /// The connection's error.
        #[source]
        source: hyper::Error,
    },
    /// The backend switched protocols without a request for it.
    #[error("{backend} switched protocols without a request for it")]
    UnexpectedUpgrade {
        /// The backend's address.
        backend: SocketAddrV6,
    },
    /// The body has a transfer coding besides chunked, which is not supported and no client asked for.
    #[error("the response of {backend} has a transfer coding besides chunked")]
    Coded {
        /// The backend's address.
        backend: SocketAddrV6,
    },
    /// No response's head was received before the request's deadline.
    #[error("no response from {backend} before the request's deadline")]
    Deadline {
        /// The backend's address.
        backend: SocketAddrV6,
    },
}

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// The error.
    pub error: ForwardError,
    /// The unchanged request, if no backend can have acted on it: it may be sent to another one.
    pub unsent: Option<Outbound>,
}

impl Failure {
    pub(crate) fn unsent(error: ForwardError, outbound: Outbound) -> Box<Self> {
        Box::new(Self {
            error,
            unsent: Some(outbound),
        })
    }

    pub(crate) fn sent(error: ForwardError) -> Box<Self> {
        Box::new(Self {
            error,
            unsent: None,
        })
    }
}

//! The forwarding of one request to one backend. A failure returns the request if it may be sent to another backend.

use std::io;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, Upstream};
use crate::hop;
use crate::outbound::Outbound;
use crate::relay::Relayed;
use crate::splice::splice;

/// Errors of a forwarded request.
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
    /// No response's head was received before the request's deadline.
    #[error("no response from {backend} before the request's deadline")]
    Deadline {
        /// The backend's address.
        backend: SocketAddrV6,
    },
}

impl ForwardError {
    /// Whether no connection was established: another backend, or the same one later, may succeed.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::ConnectTimeout { .. })
    }
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
    fn unsent(error: ForwardError, outbound: Outbound) -> Box<Self> {
        Box::new(Self {
            error,
            unsent: Some(outbound),
        })
    }

    fn sent(error: ForwardError) -> Box<Self> {
        Box::new(Self {
            error,
            unsent: None,
        })
    }
}

/// Sends `outbound` to `backend` and returns the response with a streamed body.
///
/// `guard` is dropped at the end of the exchange: when the response's body has ended or is dropped, or when both sides
/// of an upgraded connection have closed; on failure at once. `deadline` limits the exchange, but not an upgraded
/// connection. Dropping the future, because the client has gone, closes the connection to the backend or resets its
/// stream.
pub async fn forward<G: Send + Unpin + 'static>(
    outbound: Outbound,
    backend: &Arc<Backend>,
    deadline: Instant,
    guard: G,
) -> Result<Response<Relayed<G>>, Box<Failure>> {
    let address = backend.address();
    let http2 = outbound.http2;
    let exchange = async {
        if http2 {
            send_http2(outbound, backend).await
        } else {
            send_http1(outbound, backend).await
        }
    };
    let sent = match timeout_at(deadline, exchange).await {
        Ok(sent) => sent?,
        Err(_elapsed) => return Err(Failure::sent(ForwardError::Deadline { backend: address })),
    };
    let Sent {
        mut response,
        upgrade,
        upstream,
    } = sent;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        hop::strip(response.headers_mut());
        return Ok(response.map(|body| Relayed::new(body, upstream, deadline, guard)));
    }
    let Some(client) = upgrade else {
        return Err(Failure::sent(ForwardError::UnexpectedUpgrade {
            backend: address,
        }));
    };
    let server = hyper::upgrade::on(&mut response);
    hop::strip_keeping_upgrade(response.headers_mut());
    tokio::spawn(splice(client, server, guard));
    Ok(response.map(Relayed::empty))
}

struct Sent {
    response: Response<Incoming>,
    upgrade: Option<OnUpgrade>,
    upstream: Upstream,
}

async fn send_http1(mut outbound: Outbound, backend: &Arc<Backend>) -> Result<Sent, Box<Failure>> {
    // An upgraded connection cannot be reused, so it does not take an idle one.
    let mut fresh = outbound.upgrade.is_some();
    loop {
        let (mut sender, reused) = match backend.http1(fresh).await {
            Ok(connected) => connected,
            Err(error) => return Err(Failure::unsent(error, outbound)),
        };
        let replay = if reused { outbound.replay() } else { None };
        let mut failed = match sender.try_send_request(outbound.request).await {
            Ok(response) => {
                let upstream = Upstream::http1(sender, backend);
                return Ok(Sent {
                    response,
                    upgrade: outbound.upgrade,
                    upstream,
                });
            }
            Err(failed) => failed,
        };
        let unsent = failed.take_message().or(replay);
        let error = ForwardError::Lost {
            backend: backend.address(),
            source: failed.into_error(),
        };
        let Some(request) = unsent else {
            return Err(Failure::sent(error));
        };
        outbound.request = request;
        if !reused {
            return Err(Failure::unsent(error, outbound));
        }
        // The backend had closed the idle connection, which is no failure: try a new one.
        fresh = true;
    }
}

async fn send_http2(mut outbound: Outbound, backend: &Arc<Backend>) -> Result<Sent, Box<Failure>> {
    let mut second = false;
    loop {
        let mut sender = match backend.http2().await {
            Ok(sender) => sender,
            Err(error) => return Err(Failure::unsent(error, outbound)),
        };
        let replay = outbound.replay();
        let mut failed = match sender.try_send_request(outbound.request).await {
            Ok(response) => {
                return Ok(Sent {
                    response,
                    upgrade: None,
                    upstream: Upstream::http2(sender),
                });
            }
            Err(failed) => failed,
        };
        let unsent = failed.take_message().or(replay);
        let error = ForwardError::Lost {
            backend: backend.address(),
            source: failed.into_error(),
        };
        let Some(request) = unsent else {
            return Err(Failure::sent(error));
        };
        outbound.request = request;
        if second {
            return Err(Failure::unsent(error, outbound));
        }
        second = true;
    }
}

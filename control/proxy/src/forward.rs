//! Sends one request to one backend and says, when it fails, whether it may be tried elsewhere.

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

/// Why a request got no response from its backend.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The backend's address did not take the connection.
    #[error("failed to connect to {backend}")]
    Connect {
        /// The address that was dialled.
        backend: SocketAddrV6,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The backend's address did not answer in time.
    #[error("failed to connect to {backend} within {limit:?}")]
    ConnectTimeout {
        /// The address that was dialled.
        backend: SocketAddrV6,
        /// The limit of one dial.
        limit: Duration,
    },
    /// The connection broke before the response's head was complete.
    #[error("lost the connection to {backend} before its response")]
    Lost {
        /// The backend that was asked.
        backend: SocketAddrV6,
        /// What broke.
        #[source]
        source: hyper::Error,
    },
    /// The backend switched protocols although the client had not asked for it.
    #[error("{backend} switched protocols without being asked")]
    UnaskedUpgrade {
        /// The backend that was asked.
        backend: SocketAddrV6,
    },
    /// No response's head came before the request's deadline.
    #[error("no response from {backend} before the request's deadline")]
    Deadline {
        /// The backend that was asked.
        backend: SocketAddrV6,
    },
}

impl ForwardError {
    /// Whether the backend could not even be dialled: another one, or this one a little later, may do.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::ConnectTimeout { .. })
    }
}

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub error: ForwardError,
    /// The request, untouched, when nothing of it can have been acted upon: it may go to another backend.
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

/// Sends `outbound` to `backend`; the response's body streams.
///
/// `guard` lives as long as the exchange: until the response's body has ended or was dropped, or until
/// an upgraded connection closed on either side. On failure it is dropped at once.
/// `deadline` bounds the whole exchange; an upgraded connection is beyond it.
/// Dropping the future (the client left) closes the connection or resets the stream to the backend.
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
        return Err(Failure::sent(ForwardError::UnaskedUpgrade {
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
    // An upgraded connection never comes back: it gets one of its own.
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
        // The backend had closed the idle connection: that says nothing about the backend.
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

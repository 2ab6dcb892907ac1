//! The forwarding of one request to one backend. A failure returns the request if it may be sent to another backend.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, Upstream};
use crate::error::{Failure, ForwardError};
use crate::hop;
use crate::outbound::Outbound;
use crate::relay::Relayed;
use crate::splice::splice;
use crate::upload::Upload;

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
    if hop::is_coded(response.headers()) {
        return Err(Failure::sent(ForwardError::Coded { backend: address }));
    }
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
        let (mut connection, reused) = match backend.http1(fresh).await {
            Ok(connected) => connected,
            Err(error) => return Err(Failure::unsent(error, outbound)),
        };
        let sending = connection.sender.try_send_request(outbound.request);
        let mut failed = match sending.await {
            Ok(response) => {
                return Ok(Sent {
                    response,
                    upgrade: outbound.upgrade,
                    upstream: Upstream::http1(connection, backend),
                });
            }
            Err(failed) => failed,
        };
        let unsent = failed.take_message();
        let error = lost(backend, failed.into_error());
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
        let (mut stream, reused) = match backend.http2().await {
            Ok(stream) => stream,
            Err(error) => return Err(Failure::unsent(error, outbound)),
        };
        outbound.request.body_mut().hold(&stream.slot);
        let replay = outbound.replay();
        let mut failed = match stream.sender.try_send_request(outbound.request).await {
            Ok(response) => {
                return Ok(Sent {
                    response,
                    upgrade: None,
                    upstream: Upstream::http2(stream),
                });
            }
            Err(failed) => failed,
        };
        let not_processed = refusal(failed.error());
        let unsent = failed
            .take_message()
            .or_else(|| not_processed.and_then(|_| unread(replay)));
        let error = lost(backend, failed.into_error());
        let Some(request) = unsent else {
            return Err(Failure::sent(error));
        };
        outbound.request = request;
        outbound.request.body_mut().release();
        // A pod that closes a reused connection has not failed: try another one, once. One that refuses a stream has
        // too many: the caller waits.
        if !reused || second || not_processed == Some(Refused::Stream) {
            return Err(Failure::unsent(error, outbound));
        }
        second = true;
    }
}

/// The request for another attempt, if nothing of its body has been read.
fn unread(replay: Request<Upload>) -> Option<Request<Upload>> {
    let (head, body) = replay.into_parts();
    let body = body.take_unread()?;
    Some(Request::from_parts(head, body))
}

fn lost(backend: &Backend, source: hyper::Error) -> ForwardError {
    ForwardError::Lost {
        backend: backend.address(),
        source,
    }
}

/// A pod's statement that it has not acted on a request (RFC 9113, 8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// RST_STREAM with REFUSED_STREAM.
    Stream,
    /// GOAWAY with a last stream below the request's. The streams up to the last one end by the connection's end, which
    /// is another error.
    Connection,
}

fn refusal(error: &hyper::Error) -> Option<Refused> {
    let error = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    if !error.is_remote() {
        None
    } else if error.is_go_away() {
        Some(Refused::Connection)
    } else {
        (error.reason() == Some(h2::Reason::REFUSED_STREAM)).then_some(Refused::Stream)
    }
}

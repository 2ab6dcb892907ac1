//! Routes of axum over accepted connections. The open requests of each connection are counted, watches included: one without any,
//! and without a certificate, is closed, and so is one with a response that is not read. The body of a request has to come in time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Peer};
pub use crate::held::hold;
use crate::idle::Requests;
use crate::incoming::Incoming;
use crate::request_body::{BODY_TIME_MAX, Timed};
use crate::response_body::Counted;

/// Longest time without a request on a connection without a certificate.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Longest time for which a client does not read what a response has.
const UNREAD_MAX: Duration = Duration::from_secs(30);

/// Serves routes, which find the client as `ConnectInfo<Peer>`, until `shutdown`.
///
/// # Errors
///
/// The server failed; axum's never does.
pub async fn serve(
    incoming: Incoming,
    routes: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let routes = routes.layer(from_fn(count));
    let service = routes.into_make_service_with_connect_info::<Peer>();
    let incoming = incoming.closing_idle(IDLE_MAX).closing_unread(UNREAD_MAX);
    axum::serve(incoming, service)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

/// The layer in front of all routes.
async fn count(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    let open = peer.requests.as_ref().map(Requests::begin);
    let request = request.map(|body| Timed::limit(body, BODY_TIME_MAX));
    let response = next.run(request).await;
    match open {
        Some(open) => response.map(|body| Counted::body(body, open)),
        None => response,
    }
}

impl Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Connected<IncomingStream<'_, Incoming>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        stream.io().peer().clone()
    }
}

#[cfg(test)]
mod tests;

//! The gRPC server of the link.

use std::pin::Pin;
use std::time::Duration;

use dormouse_fleet::{Callers, Incoming};
use futures::{Stream, StreamExt};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::Hub;
use super::proto::activators_server::{Activators, ActivatorsServer};
use super::proto::{Down, Up};

/// A stream without a first message by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval and timeout of HTTP/2 keepalive pings.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Limit of one message: room for the load of all apps.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Serves activators until `shutdown`, which also ends their streams.
pub async fn serve(
    incoming: impl Into<Incoming>,
    hub: Hub,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let service = ActivatorsServer::new(Service {
        hub,
        shutdown: shutdown.clone(),
    })
    .max_decoding_message_size(MESSAGE_BYTES_MAX)
    .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Callers::Roles
        .server()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(service)
        .serve_with_incoming_shutdown(incoming.into().connections(), shutdown.cancelled_owned())
        .await
}

struct Service {
    hub: Hub,
    shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Activators for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<Down, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<Up>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut ups = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, ups.message())
            .await
            .map_err(|_elapsed| Status::deadline_exceeded("no hello within 10 s"))??
            .unwrap_or_default();
        let named = first
            .hello
            .as_ref()
            .is_some_and(|hello| !hello.name.is_empty());
        if !named {
            return Err(Status::invalid_argument("the hello has no name"));
        }
        let shutdown = self.shutdown.clone();
        // An error ends the stream as its end does: the activator connects again.
        let ups = ups
            .take_while(|up| std::future::ready(up.is_ok()))
            .filter_map(|up| std::future::ready(up.ok()))
            .take_until(shutdown.clone().cancelled_owned());
        let downs = self.hub.open(first, Box::pin(ups));
        let downs = ReceiverStream::new(downs)
            .map(Ok)
            .take_until(shutdown.cancelled_owned());
        Ok(Response::new(Box::pin(downs)))
    }
}

//! The channel of a gRPC client: a connection to a server, or the server's services in this process.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tonic::{
    Status,
    body::Body,
    transport::{Channel as Connection, Endpoint, Error},
};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

/// Timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A channel; clones share its connection.
pub type Channel = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// A channel to the server at a URL, which connects on first use and reconnects.
pub fn remote(url: &str) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?.connect_timeout(CONNECT_TIMEOUT);
    Ok(over(endpoint.connect_lazy()))
}

/// A channel over a connection.
pub fn over(connection: Connection) -> Channel {
    Channel::new(connection.map_err(|error| Status::from_error(Box::new(error))))
}

/// A channel to services in this process. They run in the tasks of their callers, and what they stream is made at the pace
/// at which it is read.
pub fn in_process<S>(services: S) -> Channel
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    Channel::new(services.map_err(|never| match never {}))
}

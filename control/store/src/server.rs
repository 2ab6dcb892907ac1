//! The server: etcd's services over gRPC, its HTTP endpoints on the same port, and lease expiry.

mod accept;
mod api;
mod auth;
mod authority;
mod cluster;
pub(crate) mod codec;
mod concurrency;
mod descriptors;
mod direct;
mod guard;
mod http;
mod kv;
mod lease;
mod listener;
mod maintenance;
mod measure;
mod observed;
mod options;
mod reflection;
mod session;
mod tls;
mod trace;
mod watch;

use std::{convert::Infallible, io};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
};

use crate::{Error, Store};
use api::{Api, InProcess};
pub use descriptors::raise_descriptor_limit;
pub use dormouse_trust::CertificateFiles;
pub use listener::Listener;
pub use options::{Diagnosis, Options, STREAMS_MAX};
pub use tls::{Tls, TlsError, TlsFiles, TlsParameters};
pub use trace::{Part, Trace};

/// HTTP/2 flow control windows. A connection carries many streams of small frames; h2 resets a
/// stream whose unread small frames exceed a part of its window, so the window is large.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

/// The version of etcd's API that the store implements. kube-apiserver uses progress requests of
/// watches only from certain etcd versions on.
const API_VERSION: &str = "3.7.0";

/// An error that ends the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The messages that reflection serves could not be decoded.
    #[error("failed to set up the reflection service")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("failed to serve etcd's API")]
    Transport(#[source] tonic::transport::Error),
    /// The HTTP listener failed.
    #[error("failed to serve metrics and health")]
    Http(#[source] io::Error),
}

/// Serves etcd's API on a listener, see [`serve_with`].
pub async fn serve(
    listener: TcpListener,
    store: Store,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    serve_with(vec![listener], store, Options::default(), shutdown).await
}

/// Serves etcd's API on the listeners until `shutdown` is cancelled, then ends all streams and
/// returns when the requests in flight are answered. Leases expire only while it runs.
pub async fn serve_with<L: Into<Listener>>(
    listeners: Vec<L>,
    store: Store,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    Server::new(listeners, store, options, shutdown)?
        .run()
        .await
}

/// A server that does not run yet.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    store: Store,
    api: Api,
    options: Options,
    shutdown: CancellationToken,
    /// Ends the streams when the server ends: also when the transport fails.
    streams: CancellationToken,
}

impl Server {
    /// A server of etcd's API on the listeners.
    pub fn new<L: Into<Listener>>(
        listeners: Vec<L>,
        store: Store,
        options: Options,
        shutdown: CancellationToken,
    ) -> Result<Self, ServeError> {
        let listeners: Vec<Listener> = listeners.into_iter().map(Into::into).collect();
        let streams = shutdown.child_token();
        let urls = options.urls(&listeners);
        let api = Api::new(&store, &options, urls, streams.clone())?;
        Ok(Self {
            listeners,
            store,
            api,
            options,
            shutdown,
            streams,
        })
    }

    /// Its API for clients in this process: the same services behind the same checks, without a connection. A client has
    /// no certificate, and as a user the one of its token. Leases expire only while the server runs.
    pub fn in_process(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    >
    + Clone
    + Send
    + Sync
    + 'static
    + use<> {
        InProcess::new(self.api.clone(), self.streams.clone())
    }

    /// Serves until `shutdown` is cancelled, then ends all streams and returns when the requests of connections in flight
    /// are answered.
    pub async fn run(self) -> Result<(), ServeError> {
        let _guard = self.streams.clone().drop_guard();
        let (options, store) = (&self.options, &self.store);
        let acceptor = options.acceptor(store.metrics());
        let connections = accept::connections(self.listeners, &acceptor, &self.streams);
        let server = transport()
            .max_concurrent_streams(options.streams_max)
            .http2_keepalive_interval(options.keepalive())
            .http2_keepalive_timeout(Some(options.keepalive_timeout))
            .accept_http1(true)
            .serve_with_incoming_shutdown(
                self.api,
                connections,
                self.shutdown.clone().cancelled_owned(),
            );
        tokio::select! {
            ended = server => ended.map_err(ServeError::Transport),
            () = store.expire_leases() => Ok(()),
            () = store.reclaim_compacted() => Ok(()),
            () = store.take_snapshots() => Ok(()),
        }
    }
}

/// Serves health, version and metrics over HTTP until `shutdown` is cancelled; for a listener of
/// their own, such as one without client certificates.
pub async fn serve_http<L: Into<Listener>>(
    listener: L,
    store: Store,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    axum::serve(listener.into(), http::router(&store))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
        .map_err(ServeError::Http)
}

/// The settings of the transport that no option changes.
pub fn transport() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::EmptyKey
            | Error::KeyNotFound
            | Error::ValueProvided
            | Error::LeaseProvided
            | Error::TooManyOps
            | Error::DuplicateKey
            | Error::InvalidSortOption
            | Error::RequestTooLarge => Code::InvalidArgument,
            Error::MessageTooLarge | Error::NoSpace | Error::TooManyRequests => {
                Code::ResourceExhausted
            }
            Error::JournalFailed => Code::Unavailable,
            Error::Corrupt => Code::DataLoss,
            Error::Compacted | Error::FutureRevision | Error::LeaseTtlTooLarge => Code::OutOfRange,
            Error::LeaseNotFound => Code::NotFound,
            Error::LeaseExists => Code::FailedPrecondition,
            Error::Auth(refusal) => return refusal.into(),
        };
        Self::new(code, error.to_string())
    }
}

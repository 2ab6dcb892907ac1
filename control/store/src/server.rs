//! The server: etcd's services over gRPC, its HTTP endpoints on the same port, and lease expiry.

mod accept;
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

use std::io;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, service::Routes, transport::Server};

use crate::{
    Error, Store,
    proto::{
        etcdserverpb::{
            auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer,
            lease_server::LeaseServer, maintenance_server::MaintenanceServer,
            watch_server::WatchServer,
        },
        v3electionpb::election_server::ElectionServer,
        v3lockpb::lock_server::LockServer,
    },
};
pub use descriptors::raise_descriptor_limit;
use direct::DirectLayer;
use guard::GuardLayer;
pub use listener::Listener;
use measure::MeasureLayer;
pub use options::Options;
pub use tls::{Tls, TlsError, TlsFiles, TlsParameters};
use trace::TraceLayer;
pub use trace::{Part, Trace};

/// HTTP/2 flow control windows. A connection carries many streams of small frames; h2 resets a
/// stream whose unread small frames exceed a part of its window, so the window is large.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

/// The version of etcd's API that the store implements. kube-apiserver uses progress requests of
/// watches only from certain etcd versions on.
const API_VERSION: &str = "3.7.0";

/// A message that exceeds [`crate::Limits::message_bytes_max`] by at most this gets etcd's error; the
/// transport rejects larger ones.
const EXCESS_BYTES_MAX: usize = 6 << 20;

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
    let listeners: Vec<Listener> = listeners.into_iter().map(Into::into).collect();
    let urls = options.urls(&listeners);
    // The guard cancels this token when the transport fails, so that the streams end then, too.
    let streams = shutdown.child_token();
    let _guard = streams.clone().drop_guard();
    let decoded_bytes_max = store
        .limits()
        .message_bytes_max()
        .saturating_add(EXCESS_BYTES_MAX);
    let kv =
        KvServer::new(kv::Service::new(store.clone())).max_decoding_message_size(decoded_bytes_max);
    let acceptor = options.acceptor(store.metrics());
    let connections = accept::connections(listeners, &acceptor, &streams);
    let cluster = cluster::Service::new(store.clone(), options.name.clone(), urls);
    let server = transport()
        .max_concurrent_streams(options.streams_max)
        .http2_keepalive_interval(options.keepalive())
        .http2_keepalive_timeout(Some(options.keepalive_timeout))
        .accept_http1(true)
        .layer(MeasureLayer(store.clone()))
        .layer(TraceLayer::new(options.trace))
        .layer(DirectLayer(kv))
        .layer(GuardLayer(store.clone()))
        .add_routes(routes(&store, cluster, streams)?)
        .serve_with_incoming_shutdown(connections, shutdown.cancelled_owned());
    tokio::select! {
        ended = server => ended.map_err(ServeError::Transport),
        () = store.expire_leases() => Ok(()),
        () = store.reclaim_compacted() => Ok(()),
        () = store.take_snapshots() => Ok(()),
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

/// All services but KV, and the HTTP endpoints.
fn routes(
    store: &Store,
    cluster: cluster::Service,
    streams: CancellationToken,
) -> Result<Routes, ServeError> {
    let watches = watch::Service::new(store.clone(), streams.clone());
    let leases = lease::Service::new(store.clone(), streams.clone());
    let queues = concurrency::Service::new(store.clone(), streams);
    let mut builder = Routes::builder();
    builder
        .add_service(AuthServer::new(auth::Service::new(store.clone())))
        .add_service(WatchServer::new(watches))
        .add_service(LeaseServer::new(leases))
        .add_service(LockServer::new(queues.clone()))
        .add_service(ElectionServer::new(queues))
        .add_service(ClusterServer::new(cluster))
        .add_service(MaintenanceServer::new(maintenance::Service::new(
            store.clone(),
        )));
    reflection::add(&mut builder).map_err(ServeError::Reflection)?;
    let mut routes = builder.routes();
    let services = std::mem::take(routes.axum_router_mut());
    *routes.axum_router_mut() = services.merge(http::router(store));
    Ok(routes.prepare())
}

/// The settings of the transport that no option changes.
pub fn transport() -> Server {
    Server::builder()
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

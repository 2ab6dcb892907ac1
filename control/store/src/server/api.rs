//! etcd's API of a store, whatever the transport: its services, and the layers before them.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    mem,
    task::{Context, Poll},
};

use tokio_util::{either::Either, sync::CancellationToken};
use tonic::{
    Status,
    body::Body,
    codegen::{Service, http},
    service::Routes,
};
use tower_layer::Layer;

use super::{
    ServeError, auth, cluster, concurrency,
    direct::{Direct, DirectLayer},
    guard::{Guard, GuardLayer},
    http as endpoints, kv, lease, maintenance,
    measure::{MeasureLayer, Measured},
    options::Options,
    reflection,
    trace::{TraceLayer, Traced},
    watch,
};
use crate::{
    Store,
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

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// A message that exceeds [`crate::Limits::message_bytes_max`] by at most this gets etcd's error; the
/// transport rejects larger ones.
const EXCESS_BYTES_MAX: usize = 6 << 20;

/// The services in their layers, from the outermost on.
type Layers = Measured<Traced<Direct<KvServer<kv::Service>, Guard<Routes>>>>;

/// etcd's API of a store.
#[derive(Clone, Debug)]
pub(super) struct Api(Layers);

impl Api {
    /// The API of a store whose server has these URLs. Its streams end with `streams`.
    pub(super) fn new(
        store: &Store,
        options: &Options,
        urls: Vec<String>,
        streams: CancellationToken,
    ) -> Result<Self, ServeError> {
        let decoded_bytes_max = store
            .limits()
            .message_bytes_max()
            .saturating_add(EXCESS_BYTES_MAX);
        let kv = KvServer::new(kv::Service::new(store.clone()))
            .max_decoding_message_size(decoded_bytes_max);
        let cluster = cluster::Service::new(store.clone(), options.name.clone(), urls);
        let layers = (
            MeasureLayer(store.clone()),
            TraceLayer::new(options.trace.clone()),
            DirectLayer(kv),
            GuardLayer(store.clone()),
        );
        Ok(Self(layers.layer(routes(store, cluster, streams)?)))
    }
}

impl Service<Request> for Api {
    type Response = Response;
    type Error = Infallible;
    type Future = <Layers as Service<Request>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.0.call(request)
    }
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
    let services = mem::take(routes.axum_router_mut());
    *routes.axum_router_mut() = services.merge(endpoints::router(store));
    Ok(routes.prepare())
}

/// The API of a server for clients in its process, see [`super::Server::in_process`].
#[derive(Clone, Debug)]
pub(super) struct InProcess {
    api: Api,
    /// Cancelled when the server ends: calls are refused then, as by a connection that is closed.
    ended: CancellationToken,
}

impl InProcess {
    pub(super) fn new(api: Api, ended: CancellationToken) -> Self {
        Self { api, ended }
    }
}

impl Service<Request> for InProcess {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<<Api as Service<Request>>::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.api.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if self.ended.is_cancelled() {
            let refusal = Status::unavailable("the store is shutting down").into_http();
            return Either::Right(ready(Ok(refusal)));
        }
        Either::Left(self.api.call(request))
    }
}

//! The part of the Kubernetes REST API that `kubectl`, the `kube` crate and the `dormouse` commands use for apps, revisions,
//! pods, nodes, events, namespaces, Services, EndpointSlices, roles, their bindings and the autoscaler's ConfigMap. Requests are authorized
//! and objects from clients are validated here, and only here.

pub mod age;
pub(crate) mod amount;
mod discovery;
mod failure;
mod fields;
mod health;
mod kind;
mod log;
mod namespaces;
mod negotiate;
mod openapi;
mod patch;
mod position;
mod query;
mod read;
mod rights;
mod selector;
mod storage;
mod table;
mod trust;
mod watch;
mod write;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{MethodRouter, get, post},
};
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::{App, Channel, Client, Revision, Services, claim::Claims};
use dormouse_fleet::{Incoming, http};
use dormouse_scheduler::SchedulerClient;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::audit::Audit;
use crate::readiness::Checks;
use crate::trust::Registrar;
use failure::Failure;
use kind::Kind;
use namespaces::Namespaces;
pub use rights::authentication::{Authenticator, Bearer};
use rights::{budget::Budgets, ending::Ends, policy::Followers};

/// Maximum bytes of a request's body; kube-apiserver's limit.
const BODY_BYTES_MAX: usize = 3 << 20;
/// Longest wait, at the start, for the namespaces and the roles that exist from the start.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// The apps controller's data that are not in the objects: explanations and wakes.
pub trait Insight: Send + Sync {
    /// The `Explanation` of an app; `None` if the controller has not seen the app yet.
    fn explain(&self, namespace: &str, name: &str) -> Option<serde_json::Value>;
    /// The autoscaling settings in force of apps that set none.
    fn autoscaling(&self) -> Arc<Cluster>;
    /// The settings of an app that are not the defaults, one line each.
    fn settings(&self, app: &App) -> Vec<String>;
    /// The `WakeList` of an app; `None` if the controller has not seen the app yet.
    fn wakes(&self, namespace: &str, name: &str) -> Option<serde_json::Value>;
}

/// The configuration of the API server.
pub struct Config {
    /// The store.
    pub client: Client,
    /// The VIPs of apps.
    pub claims: Claims,
    /// The cluster IPs and node ports of Services.
    pub services: Services,
    /// The apps controller.
    pub insight: Arc<dyn Insight>,
    /// The nodes, which have the pods' logs.
    pub fleet: dormouse_fleet::Handle,
    /// The scheduler, which explains pods.
    pub scheduler: Channel,
    /// The checks of `/readyz`.
    pub checks: Checks,
    /// Knows the users of bearer tokens. `None`: all requests whose connection has no user are the administrator's.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Where requests are recorded.
    pub audit: Option<Audit>,
    /// Makes join tokens; none: there are no certificates.
    pub registrar: Option<Registrar>,
}

/// The state shared by all requests.
struct Api {
    client: Client,
    claims: Claims,
    services: Services,
    insight: Arc<dyn Insight>,
    fleet: dormouse_fleet::Handle,
    scheduler: SchedulerClient<Channel>,
    checks: Checks,
    namespaces: Namespaces,
    authenticator: Option<Arc<dyn Authenticator>>,
    /// Ends the watches and logs of tokens that are deleted and of nodes that are revoked.
    ends: Ends,
    budgets: Budgets,
    audit: Option<Audit>,
    policy: Arc<Followers>,
    registrar: Option<Registrar>,
    /// Ends the watches: a graceful shutdown waits for all responses.
    shutdown: CancellationToken,
}

/// The API, which has a policy and knows users.
pub struct Server(Arc<Api>);

impl Server {
    /// The API until `shutdown`.
    pub fn new(config: Config, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Api {
            claims: config.claims,
            services: config.services,
            client: config.client,
            insight: config.insight,
            fleet: config.fleet,
            scheduler: SchedulerClient::new(config.scheduler),
            checks: config.checks,
            namespaces: Namespaces::default(),
            authenticator: config.authenticator,
            ends: Ends::default(),
            budgets: Budgets::default(),
            audit: config.audit,
            policy: Arc::default(),
            registrar: config.registrar,
            shutdown,
        }))
    }

    /// Routes of another listener for the users who have the right to their paths. The listener's clients are `ConnectInfo<Peer>`.
    pub fn guarded(&self, routes: Router) -> Router {
        let api = Arc::clone(&self.0);
        routes.route_layer(middleware::from_fn_with_state(api, rights::gate::check))
    }

    /// Serves the API until the shutdown.
    pub async fn serve(self, incoming: Incoming) -> io::Result<()> {
        let Self(api) = self;
        provide(&api).await;
        let shutdown = api.shutdown.clone();
        http::serve(incoming, router(api), shutdown).await
    }
}

/// Creates what exists from the start. The API answers also while the store does not: it waits a short time only.
async fn provide(api: &Arc<Api>) {
    api.policy.start(&api.client, &api.shutdown);
    let (of_roles, shutdown) = (Arc::clone(api), api.shutdown.clone());
    let roles = tokio::spawn(shutdown.run_until_cancelled_owned(async move {
        rights::policy::provide(&of_roles).await;
    }));
    let provided = async {
        namespaces::provide_permanent(api).await;
        // It ends before that only at a shutdown.
        let _ = roles.await;
    };
    if timeout(START_TIMEOUT, provided).await.is_err() {
        warn!(
            "namespaces and roles could not be created in time; they are as soon as the store answers"
        );
    }
}

fn router(api: Arc<Api>) -> Router {
    let app = format!("{}/namespaces/{{namespace}}/apps/{{name}}", App::BASE);
    let scale = get(write::scale::read)
        .put(write::scale::replace)
        .patch(write::scale::patch);
    let pod = format!("{}/namespaces/{{namespace}}/pods/{{name}}", Pod::BASE);
    Router::new()
        .merge(discovery::routes())
        .merge(health::routes())
        .merge(openapi::routes())
        .merge(namespaced::<App>())
        .merge(namespaced::<Revision>())
        .merge(namespaced::<Pod>())
        .merge(namespaced::<Event>())
        .merge(namespaced::<ConfigMap>())
        .merge(namespaced::<Service>())
        .merge(namespaced::<EndpointSlice>())
        .merge(cluster_scoped::<Node>())
        .merge(cluster_scoped::<Namespace>())
        .merge(namespaced::<Role>())
        .merge(namespaced::<RoleBinding>())
        .merge(cluster_scoped::<ClusterRole>())
        .merge(cluster_scoped::<ClusterRoleBinding>())
        .merge(rights::review::routes())
        .route(&format!("{app}/explain"), get(read::explain))
        .route(&format!("{app}/wakes"), get(read::wakes))
        .route(&format!("{app}/logs"), get(log::list))
        .route(&format!("{app}/scale"), scale)
        .route(&format!("{pod}/explain"), get(read::explain_pod))
        .route(&format!("{pod}/log"), get(log::read))
        .route(&format!("{pod}/eviction"), post(write::evict::evict))
        .merge(trust::routes())
        .fallback(|| async { Failure::no_such_path() })
        .method_not_allowed_fallback(|| async { Failure::method_not_allowed() })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&api),
            rights::gate::check,
        ))
        .with_state(api)
}

fn namespaced<K: Kind>() -> Router<Arc<Api>> {
    let (base, plural) = (K::BASE, K::PLURAL);
    let inside = format!("{base}/namespaces/{{namespace}}/{plural}");
    Router::new()
        .route(&format!("{base}/{plural}"), get(read::list::<K>))
        .merge(collection::<K>(&inside))
}

fn cluster_scoped<K: Kind>() -> Router<Arc<Api>> {
    collection::<K>(&format!("{}/{}", K::BASE, K::PLURAL))
}

fn collection<K: Kind>(path: &str) -> Router<Arc<Api>> {
    let routes = Router::new()
        .route(path, get(read::list::<K>).post(write::create::<K>))
        .route(&format!("{path}/{{name}}"), one::<K>());
    if !K::HAS_STATUS {
        return routes;
    }
    routes.route(&format!("{path}/{{name}}/status"), status::<K>())
}

fn one<K: Kind>() -> MethodRouter<Arc<Api>> {
    get(read::get::<K>)
        .put(write::replace::<K>)
        .patch(write::patch::<K>)
        .delete(write::delete::<K>)
}

fn status<K: Kind>() -> MethodRouter<Arc<Api>> {
    get(read::get::<K>)
        .put(write::replace_status::<K>)
        .patch(write::patch_status::<K>)
}

//! A store and an API server on loopback, for one test.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use dormouse::api::{self, Authenticator, Bearer, Insight};
use dormouse::audit::Audit;
use dormouse::readiness::Checks;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::{App, Client, ClientError, ServiceRanges, Services, channel, claim::Claims};
use dormouse_fleet::proto::NodeConfig;
use dormouse_fleet::{Incoming, ServerConfig};
use dormouse_rbac::User;
use dormouse_scheduler::proto::scheduler_server::{Scheduler, SchedulerServer};
use dormouse_scheduler::proto::{
    CheckReply, CheckRequest, ExplainReply, ExplainRequest, PlaceReply, PlaceRequest,
};
use dormouse_store::{Store, server};
use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use crate::client::until;

/// The insight of a controller that has seen only the apps `docs` and `web`.
struct FixedInsight {
    autoscaling: watch::Receiver<Arc<Cluster>>,
}

impl Insight for FixedInsight {
    fn explain(&self, namespace: &str, name: &str) -> Option<Value> {
        if name == "web" {
            return Some(serde_json::from_str(include_str!("screens/app.json")).unwrap());
        }
        (name == "docs").then(|| {
            json!({"apiVersion": "dormouse.dev/v1", "kind": "Explanation", "subject": format!("app/{namespace}/{name}"),
                "summary": "asleep, 0 ready of 0 wanted, mode proxy", "values": {"wanted": 0},
                "topics": [{"name": "scale", "lines": ["want 0: no request for 12s, window 6s"]},
                    {"name": "sleeps", "lines": ["since 4s"]}]})
        })
    }

    fn autoscaling(&self) -> Arc<Cluster> {
        Arc::clone(&self.autoscaling.borrow())
    }

    fn settings(&self, app: &App) -> Vec<String> {
        let min = app.spec.scale.min;
        let line = |min| format!("min {min}: spec.scale.min");
        min.map(line).into_iter().collect()
    }

    fn wakes(&self, namespace: &str, name: &str) -> Option<Value> {
        if name == "web" {
            return Some(serde_json::from_str(include_str!("screens/wakes.json")).unwrap());
        }
        let stage = |name: &str, ms: f64| json!({"name": name, "ms": ms, "atNs": 1});
        let wake = json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeTimeline", "app": format!("{namespace}/{name}"),
            "node": "node-2", "pod": "docs-1", "seenNode": "node-1",
            "stages": [stage("see", 0.0), stage("start", 80.0), stage("first byte", 100.0)]});
        (name == "docs")
            .then(|| json!({"apiVersion": "dormouse.dev/v1", "kind": "WakeList", "items": [wake]}))
    }
}

/// A scheduler that explains each pod in the same way.
struct FixedScheduler;

#[tonic::async_trait]
impl Scheduler for FixedScheduler {
    async fn place(&self, _pod: Request<PlaceRequest>) -> Result<Response<PlaceReply>, Status> {
        Err(Status::unimplemented("it only explains"))
    }

    async fn check(&self, _call: Request<CheckRequest>) -> Result<Response<CheckReply>, Status> {
        Ok(Response::new(CheckReply {}))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainReply>, Status> {
        let name = request.into_inner().name;
        let topics = json!([{"name": "scheduler", "lines": [format!("{name} is known")]}]);
        let topics = topics.to_string().into_bytes();
        Ok(Response::new(ExplainReply { topics }))
    }
}

/// Tokens that name their user; all but `wrong` are valid.
struct Names;

impl Authenticator for Names {
    fn bearer<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<Bearer>, ClientError>> {
        let (name, groups) = token.split_once('/').unwrap_or((token, "users"));
        let bearer = (token != "wrong").then(|| Bearer {
            user: User::authenticated(name, groups.split('+')),
            id: token.to_owned(),
            expires: SystemTime::now() + Duration::from_hours(1),
        });
        std::future::ready(Ok(bearer)).boxed()
    }
}

/// A store and an API server; dropping it shuts both down.
pub(crate) struct World {
    /// URL of the API.
    pub(crate) endpoint: String,
    /// A client of the store, which bypasses the API.
    pub(crate) store: Client,
    /// The store itself.
    pub(crate) history: Store,
    /// The autoscaling settings of apps that set none.
    pub(crate) autoscaling: watch::Sender<Arc<Cluster>>,
    /// The fleet, and its URL for nodes.
    pub(crate) fleet: dormouse_fleet::Handle,
    pub(crate) fleet_url: String,
    /// The home of the users who run kubectl.
    pub(crate) home: TempDir,
    _end: DropGuard,
}

impl World {
    /// Starts both. All requests are the administrator's.
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None).await
    }

    /// Starts both. The token `NAME/GROUP+GROUP` is of the user NAME in these groups.
    pub(crate) async fn start_for_users() -> Self {
        let world = Self::start_with(Some(Arc::new(Names)), None).await;
        // The roles are read from the store.
        until(&world, "user", "GET /nothing", 403).await;
        world
    }

    /// As [`World::start_for_users`], with an audit log.
    pub(crate) async fn start_audited(audit: Audit) -> Self {
        let world = Self::start_with(Some(Arc::new(Names)), Some(audit)).await;
        until(&world, "user", "GET /nothing", 403).await;
        world
    }

    async fn start_with(
        authenticator: Option<Arc<dyn Authenticator>>,
        audit: Option<Audit>,
    ) -> Self {
        let shutdown = CancellationToken::new();
        let (listener, address) = listen().await;
        let history = Store::default();
        tokio::spawn(server::serve(listener, history.clone(), shutdown.clone()));
        let store = Client::connect(&format!("http://{address}")).await.unwrap();
        let config = ServerConfig {
            reserved: vec!["fd00:96::/108".parse().unwrap()],
            own: vec!["2001:db8::c".parse().unwrap()],
            ..ServerConfig::new(1, NodeConfig::default())
        };
        let (fleet, _events) = dormouse_fleet::start(config, shutdown.clone());
        let (listener, fleet_address) = listen().await;
        tokio::spawn(dormouse_fleet::serve(
            Incoming::new(listener, 10),
            fleet.clone(),
            shutdown.clone(),
        ));
        let (in_force, autoscaling) = watch::channel(Arc::new(Cluster::starting_asleep(0)));
        let (listener, address) = listen().await;
        let config = api::Config {
            client: store.clone(),
            claims: Claims::new(store.clone(), vec!["fd00:10::/108".parse().unwrap()]),
            services: Services::new(
                store.clone(),
                ServiceRanges::parse(&["fd00:96::/108".to_owned()], &[]).unwrap(),
            ),
            insight: Arc::new(FixedInsight { autoscaling }),
            fleet: fleet.clone(),
            scheduler: channel::in_process(SchedulerServer::new(FixedScheduler)),
            checks: Checks::default(),
            authenticator,
            audit,
            registrar: None,
        };
        let api = api::Server::new(config, shutdown.clone());
        tokio::spawn(api.serve(Incoming::new(listener, 1_000)));
        Self {
            endpoint: format!("http://{address}"),
            store,
            history,
            autoscaling: in_force,
            fleet,
            fleet_url: format!("http://{fleet_address}"),
            home: tempfile::tempdir().unwrap(),
            _end: shutdown.drop_guard(),
        }
    }

    /// The keys of all objects but the namespaces and the roles and bindings of the cluster, which exist from the start.
    pub(crate) async fn written(&self) -> Vec<String> {
        let (records, _) = self.store.range("/registry/", 0).await.unwrap();
        let keys = records
            .into_iter()
            .map(|record| String::from_utf8(record.key().to_vec()).unwrap());
        let from_start = ["/registry/namespaces/", "/registry/clusterrole"];
        keys.filter(|key| !from_start.iter().any(|prefix| key.starts_with(prefix)))
            .collect()
    }

    /// A client of the `kube` crate.
    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::try_from(kube::Config::new(self.endpoint.parse().unwrap())).unwrap()
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A manifest of an app.
pub(crate) fn manifest(name: &str) -> Value {
    json!({"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": name},
        "spec": {"port": 80, "targetPort": 8000, "container": {"command": ["/bin/true"]}, "scale": {"window": "6s"}}})
}

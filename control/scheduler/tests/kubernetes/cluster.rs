//! A scheduler of the cluster of the test's API server: bindings, conditions, events, evictions and deletions.

use std::path::PathBuf;
use std::time::Duration;

use dormouse_scheduler::{Election, Extender, Profile, Server, Webhook};
use dormouse_trust::CertificateFiles;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::server::Api;

/// Longer than any operation of these tests takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const EVENTS: &str = "/apis/events.k8s.io/v1/events";

/// A cluster and its scheduler.
pub(crate) struct World {
    pub(crate) api: Api,
    /// The port of the webhook.
    pub(crate) port: u16,
    /// The folder of the webhook's certificate.
    pub(crate) folder: TempDir,
    metrics: Registry,
    _shutdown: DropGuard,
}

/// A file of the certificates.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    PathBuf::from(folder).join(name)
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(None, Vec::new()).await
    }

    /// With an election, if there is to be one, and with extenders.
    pub(crate) async fn with(election: Option<Election>, extenders: Vec<Extender>) -> Self {
        Self::of(election, vec![Profile::default()], extenders).await
    }

    pub(crate) async fn of(
        election: Option<Election>,
        profiles: Vec<Profile>,
        extenders: Vec<Extender>,
    ) -> Self {
        let (api, url) = Api::start().await;
        let config = kube::Config::new(url.parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("cert.key"),
        };
        std::fs::copy(fixture("server.pem"), &files.certificate).unwrap();
        std::fs::copy(fixture("server.key"), &files.key).unwrap();
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let webhook = Webhook::new(listener, files).unwrap();
        let server = Server::of_kubernetes(client, election).with_webhook(webhook);
        let server = server.with_profiles(profiles).with_extenders(extenders);
        let server = server.unwrap();
        let mut metrics = Registry::default();
        server.register(&mut metrics);
        let shutdown = CancellationToken::new();
        let grpc = TcpListener::bind("[::1]:0").await.unwrap();
        tokio::spawn(server.follow(grpc, shutdown.clone()));
        Self {
            api,
            port,
            folder,
            metrics,
            _shutdown: shutdown.drop_guard(),
        }
    }

    pub(crate) fn node(&self, name: &str, pods: u32) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": pods.to_string()}}});
        self.api.put(NODES, &node);
    }

    /// Returns once the scheduler knows so many nodes.
    pub(crate) async fn seen(&self, nodes: usize) {
        let line = format!(r#"scheduler_cache_size{{type="nodes"}} {nodes}"#);
        self.metric(&line).await;
    }

    /// Returns once the pod is bound; its node.
    pub(crate) async fn bound(&self, name: &str) -> String {
        let node = |api: &Api| {
            let pod = api.get(PODS, &format!("default/{name}"))?;
            pod["spec"]["nodeName"].as_str().map(str::to_owned)
        };
        self.api.until(name, |api| node(api).is_some()).await;
        node(&self.api).unwrap()
    }

    /// Returns once the page of the metrics has this line.
    pub(crate) async fn metric(&self, line: &str) {
        let page = || {
            let mut text = String::new();
            encode(&mut text, &self.metrics).unwrap();
            text
        };
        let shown = async {
            while !page().lines().any(|other| other == line) {
                tokio::task::yield_now().await;
            }
        };
        let shown = tokio::time::timeout(DEADLINE, shown).await;
        assert!(shown.is_ok(), "{line} in {}", page());
    }
}

/// A pod with more fields of its spec.
pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "app"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_and_its_event_recorded() {
    let world = World::start().await;
    world.node("n1", 9);
    world.api.put(PODS, &pod("a", &json!({})));
    assert_eq!(world.bound("a").await, "n1");
    let is_scheduled = |event: &Value| event["reason"] == "Scheduled" && event["type"] == "Normal";
    let recorded = |api: &Api| api.list(EVENTS).iter().any(is_scheduled);
    world.api.until("the event", recorded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_node_has_the_condition_and_is_bound_once_one_comes() {
    let world = World::start().await;
    world.node("n1", 0);
    world.api.put(PODS, &pod("a", &json!({})));
    let condition = |api: &Api| {
        let pod = api.get(PODS, "default/a").unwrap();
        pod["status"]["conditions"][0].clone()
    };
    // At first, the node may not be known yet.
    let is_unschedulable = |api: &Api| {
        let condition = condition(api);
        let message = condition["message"].to_string();
        condition["reason"] == "Unschedulable" && message.contains("Too many pods")
    };
    world.api.until("the condition", is_unschedulable).await;
    world.node("n2", 1);
    assert_eq!(world.bound("a").await, "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_higher_priority_evicts_one_of_lower_priority() {
    let world = World::start().await;
    world.node("n1", 1);
    world.api.put(PODS, &pod("low", &json!({})));
    world.bound("low").await;
    world.api.put(PODS, &pod("high", &json!({"priority": 9})));
    assert_eq!(world.bound("high").await, "n1");
    assert_eq!(world.api.get(PODS, "default/low"), None);
    let status = "PATCH /api/v1/namespaces/default/pods/low/status";
    assert!(!world.api.writes(status).is_empty(), "DisruptionTarget");
    assert_eq!(world.api.writes("DELETE ").len(), 1);
}

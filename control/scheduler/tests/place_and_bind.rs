//! The scheduler over a real store and gRPC: `Place` calls, bindings of pending pods, events about unschedulable ones.
#![expect(clippy::unwrap_used, reason = "a test's own set-up fails by panicking")]

use std::time::Duration;

use dormouse_cluster::reflector::{self, Kinds};
use dormouse_cluster::{Channel, Client, Key, channel, pod};
use dormouse_scheduler::proto::{ExplainRequest, PlaceReply, PlaceRequest};
use dormouse_scheduler::{SchedulerClient, Server};
use dormouse_store::{Store, server};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;

/// Longer than any operation of these tests takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

struct World {
    client: Client,
    /// Over a connection.
    scheduler: SchedulerClient<Channel>,
    /// Without one.
    in_process: SchedulerClient<Channel>,
    metrics: Registry,
    _shutdown: DropGuard,
}

impl World {
    async fn start() -> Self {
        let shutdown = CancellationToken::new();
        let (listener, endpoint) = listen().await;
        tokio::spawn(server::serve(listener, Store::new(), shutdown.clone()));
        let client = Client::connect(&endpoint).await.unwrap();
        let (listener, endpoint) = listen().await;
        let server = Server::new(client.clone());
        let mut metrics = Registry::default();
        server.register(&mut metrics);
        let in_process = SchedulerClient::new(channel::in_process(server.in_process()));
        let changes = reflector::start(client.clone(), Kinds::PodsAndNodes, shutdown.clone());
        tokio::spawn(server.run(listener, changes, shutdown.clone()));
        let scheduler = SchedulerClient::new(channel::remote(&endpoint).unwrap());
        Self {
            client,
            scheduler,
            in_process,
            metrics,
            _shutdown: shutdown.drop_guard(),
        }
    }

    async fn node(&self, name: &str, pods: u32, labels: Value) {
        let node: Node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": pods.to_string()},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap();
        self.client.create(&node).await.unwrap();
    }

    /// Calls `Place` until the reply is as expected: the scheduler receives nodes by its watch.
    async fn place(&mut self, pod: &Pod, expected: impl Fn(&PlaceReply) -> bool) -> PlaceReply {
        let request = PlaceRequest {
            pod: serde_json::to_vec(pod).unwrap(),
        };
        tokio::time::timeout(DEADLINE, async {
            loop {
                let reply = self
                    .scheduler
                    .place(request.clone())
                    .await
                    .unwrap()
                    .into_inner();
                if expected(&reply) {
                    return reply;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap()
    }

    async fn bound(&self, name: &str) -> String {
        self.bound_at(&Key::new("default", name)).await
    }

    async fn bound_at(&self, key: &Key) -> String {
        tokio::time::timeout(DEADLINE, async {
            loop {
                let pod: Pod = self.client.get(key).await.unwrap().unwrap();
                if let Some(node) = pod.spec.and_then(|spec| spec.node_name) {
                    return node;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap()
    }

    /// The explanation of a pod that the scheduler knows.
    async fn explain(&mut self, name: &str) -> String {
        let request = ExplainRequest {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let reply = self.scheduler.explain(request).await.unwrap();
        String::from_utf8(reply.into_inner().topics).unwrap()
    }

    async fn event(&self, reason: &str) -> String {
        tokio::time::timeout(DEADLINE, async {
            loop {
                let events = self.client.list::<Event>(Some("default")).await.unwrap();
                let found = events
                    .items
                    .into_iter()
                    .find(|event| event.reason.as_deref() == Some(reason));
                if let Some(event) = found {
                    return event.message.unwrap_or_default();
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap()
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

fn pod(name: &str, selector: &Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "app"}], "nodeSelector": selector},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placed_pod_is_assumed_before_it_is_in_the_store() {
    let mut world = World::start().await;
    world.node("n1", 1, json!({})).await;
    let placed = world
        .place(&pod("a", &json!({})), |reply| !reply.node.is_empty())
        .await;
    assert_eq!(placed.node, "n1");
    assert!(placed.placed_ns > 0);
    let refused = world.place(&pod("b", &json!({})), |_| true).await;
    let reason = "0/1 nodes are available: 1 Too many pods.";
    assert!(refused.reason.starts_with(reason), "{}", refused.reason);
    let pod = serde_json::to_vec(&pod("a", &json!({}))).unwrap();
    let again = world.in_process.place(PlaceRequest { pod }).await.unwrap();
    assert_eq!(again.into_inner().node, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_pod_is_bound_when_a_node_matches_its_selector() {
    let world = World::start().await;
    world.node("plain", 10, json!({})).await;
    world
        .client
        .create(&pod("picky", &json!({"disk": "fast"})))
        .await
        .unwrap();
    let why = world.event("FailedScheduling").await;
    assert!(
        why.contains("1 node(s) didn't match Pod's node affinity/selector."),
        "{why}"
    );
    let because = async || {
        let key = Key::new("default", "picky");
        let pod: Pod = world.client.get(&key).await.unwrap().unwrap();
        pod::waits_because(&pod)
    };
    tokio::time::timeout(DEADLINE, async {
        while because().await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let because_of = because().await.unwrap();
    assert_eq!(
        (because_of.reason.as_str(), because_of.message),
        ("Unschedulable", why)
    );
    world.node("fast", 10, json!({"disk": "fast"})).await;
    assert_eq!(world.bound("picky").await, "fast");
    assert_eq!(because().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_pod_is_refused() {
    let mut world = World::start().await;
    for bytes in [&b"{"[..], b"{}", br#"{"metadata":{"name":"a"}}"#] {
        let refused = world
            .scheduler
            .place(PlaceRequest {
                pod: bytes.to_vec(),
            })
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_higher_priority_evicts_one_of_lower_priority_and_gets_its_node() {
    let mut world = World::start().await;
    world.node("n1", 1, json!({})).await;
    world.client.create(&pod("low", &json!({}))).await.unwrap();
    assert_eq!(world.bound("low").await, "n1");
    let mut high = pod("high", &json!({}));
    high.spec.as_mut().unwrap().priority = Some(9);
    world.client.create(&high).await.unwrap();
    assert_eq!(world.bound("high").await, "n1");
    let preempted = world.event("Preempted").await;
    assert_eq!(preempted, "Preempted by pod high on node n1");
    let low: Option<Pod> = world.client.get(&Key::new("default", "low")).await.unwrap();
    assert_eq!(low, None);
    assert!(
        world
            .event("FailedScheduling")
            .await
            .contains("Too many pods")
    );
    let explained = world.explain("high").await;
    assert!(explained.contains("on n1"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_explanation_of_a_waiting_pod_has_the_reason_of_each_node() {
    let mut world = World::start().await;
    world.node("plain", 10, json!({})).await;
    world
        .client
        .create(&pod("picky", &json!({"disk": "fast"})))
        .await
        .unwrap();
    world.event("FailedScheduling").await;
    let explained = world.explain("picky").await;
    assert!(explained.contains("1 nodes: NodeAffinity"), "{explained}");
    let key = ExplainRequest {
        namespace: "default".to_owned(),
        name: "nobody".to_owned(),
    };
    let unknown = world.in_process.explain(key).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_to_the_pods_of_a_namespace_with_a_label() {
    let world = World::start().await;
    let hostname = |name: &str| json!({"kubernetes.io/hostname": name});
    world.node("n1", 10, hostname("n1")).await;
    world.node("n2", 10, hostname("n2")).await;
    let labelled = json!({"metadata": {"name": "team", "labels": {"team": "a"}}});
    let labelled: Namespace = serde_json::from_value(labelled).unwrap();
    world.client.create(&labelled).await.unwrap();
    let mut first = pod("first", &json!({"kubernetes.io/hostname": "n2"}));
    first.metadata.namespace = Some("team".to_owned());
    world.client.create(&first).await.unwrap();
    let first = Key::new("team", "first");
    world.bound_at(&first).await;
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}});
    let affinity =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut near = pod("near", &json!({}));
    near.spec.as_mut().unwrap().affinity = serde_json::from_value(affinity).unwrap();
    world.client.create(&near).await.unwrap();
    assert_eq!(world.bound("near").await, "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_have_the_names_of_kube_scheduler() {
    let world = World::start().await;
    world.node("plain", 1, json!({})).await;
    world.client.create(&pod("a", &json!({}))).await.unwrap();
    world.bound("a").await;
    let picky = pod("picky", &json!({"disk": "fast"}));
    world.client.create(&picky).await.unwrap();
    world.event("FailedScheduling").await;
    let mut waiting = pod("gated", &json!({}));
    let gates = json!([{"name": "gate"}]);
    waiting.spec.as_mut().unwrap().scheduling_gates = serde_json::from_value(gates).unwrap();
    world.client.create(&waiting).await.unwrap();
    let wanted = [
        r#"scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"} 1"#,
        r#"scheduler_schedule_attempts_total{result="unschedulable",profile="default-scheduler"} 1"#,
        r#"scheduler_scheduling_attempt_duration_seconds_count{result="scheduled",profile="default-scheduler"} 1"#,
        r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1"#,
        "scheduler_pod_scheduling_attempts_sum 1.0",
        r#"scheduler_pending_pods{queue="unschedulable"} 1"#,
        r#"scheduler_pending_pods{queue="gated"} 1"#,
        r#"scheduler_queue_incoming_pods_total{queue="active",event="UnschedulablePodAdd"} 2"#,
        r#"scheduler_queue_incoming_pods_total{queue="unschedulable",event="ScheduleAttemptFailure"} 1"#,
        "scheduler_preemption_attempts_total 0",
        r#"scheduler_cache_size{type="nodes"} 1"#,
        "dormouse_decision_duration_seconds_count 2",
    ];
    let page = || {
        let mut text = String::new();
        encode(&mut text, &world.metrics).unwrap();
        text
    };
    let all = async {
        while !wanted.iter().all(|line| page().contains(line)) {
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(DEADLINE, all).await;
    let missing: Vec<_> = wanted
        .iter()
        .filter(|line| !page().contains(**line))
        .collect();
    assert!(seen.is_ok(), "{missing:?} in {}", page());
}

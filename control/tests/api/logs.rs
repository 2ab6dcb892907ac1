//! Logs of pods: the subresource over HTTP, kubectl and `dormouse logs`, with a simulated node that has the logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_cluster::App;
use dormouse_command::Exit;
use dormouse_fleet::client::{LogLink, connect, endpoint};
use dormouse_fleet::logs::LOGS_PER_NODE_MAX;
use dormouse_fleet::proto::log_chunk::Outcome;
use dormouse_fleet::proto::{LogChunk, LogRequest, LogRun};
use futures::{AsyncBufReadExt, AsyncReadExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::changes::Watch;
use crate::commands::{failing, run, run_on_screen};
use crate::world::{World, manifest};

/// Output with a colour, a control sequence that clears the screen, and a byte that is no UTF-8.
const RAW: &[u8] = b"\x1b[31mred\x1b[2J \xff\r\nend";
const TIMEOUT: Duration = Duration::from_secs(30);

/// A node that says of each log what was asked for, and follows it until control wants no more.
#[derive(Clone, Default)]
struct Node {
    runs: Vec<LogRun>,
    /// Logs that are followed.
    followed: Arc<AtomicUsize>,
}

impl Node {
    /// Connects to control.
    async fn start(self, world: &World) {
        let channel = connect(endpoint(&world.fleet_url).unwrap()).await.unwrap();
        let mut link = LogLink::open(channel, "n1".to_owned()).await.unwrap();
        tokio::spawn(async move {
            while let Ok(request) = link.receive().await {
                let (chunks, queue) = mpsc::channel(4);
                let sent = link.answer(queue);
                let node = self.clone();
                tokio::spawn(async move { node.answer(request, chunks, sent).await });
            }
        });
        let offered = async {
            while world.fleet.log_nodes().is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(TIMEOUT, offered).await.unwrap();
    }

    async fn answer<T>(
        &self,
        request: LogRequest,
        chunks: mpsc::Sender<LogChunk>,
        sent: impl Future<Output = T>,
    ) {
        let first = LogChunk {
            id: request.id,
            ..self.log(&request)
        };
        chunks.send(first).await.unwrap();
        let ends = request.name.ends_with("-short");
        let chunks = Some(chunks).filter(|_| request.follow && !ends);
        self.followed
            .fetch_add(usize::from(request.follow), Ordering::SeqCst);
        sent.await;
        self.followed
            .fetch_sub(usize::from(request.follow), Ordering::SeqCst);
        drop(chunks);
    }

    fn log(&self, request: &LogRequest) -> LogChunk {
        if request.list {
            return LogChunk {
                runs: self.runs.clone(),
                ..LogChunk::default()
            };
        }
        let known = request.name.starts_with("web-") && request.name != "web-none";
        let outcome = if known {
            Outcome::Found
        } else {
            Outcome::NoLog
        };
        if request.name == "web-raw" {
            return LogChunk {
                outcome: Outcome::Found.into(),
                text: RAW.to_vec(),
                ..LogChunk::default()
            };
        }
        let tail = request.tail_lines.map(|lines| format!(" tail {lines}"));
        let since = request.since_ms.map(|_| " since");
        let previous = request.previous.then_some(" previous");
        let text = format!(
            "{} wrote{}{}{}\nmore\n",
            request.name,
            tail.unwrap_or_default(),
            since.unwrap_or_default(),
            previous.unwrap_or_default()
        );
        LogChunk {
            outcome: outcome.into(),
            text: text.into_bytes(),
            ..LogChunk::default()
        }
    }
}

fn ended(name: &str, ended_ms: i64) -> LogRun {
    LogRun {
        name: name.into(),
        uid: format!("uid-{name}"),
        ended_ms,
        ..LogRun::default()
    }
}

async fn add_pod(world: &World, name: &str, created: &str, node: Option<&str>) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "creationTimestamp": created,
            "labels": {"dormouse.dev/app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "app", "command": ["/bin/true"]}]},
    }))
    .unwrap();
    world.store.create(&pod).await.unwrap();
}

async fn add_app(world: &World) {
    let app: App = serde_json::from_value(manifest("web")).unwrap();
    let apps: kube::Api<App> = kube::Api::default_namespaced(world.kube());
    apps.create(&kube::api::PostParams::default(), &app)
        .await
        .unwrap();
}

fn log_of(pod: &str, query: &str) -> Request<Vec<u8>> {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/log?{query}");
    Request::get(path).body(Vec::new()).unwrap()
}

async fn read(client: &Client, pod: &str, query: &str) -> Result<String, kube::Error> {
    let mut log = Box::pin(client.request_stream(log_of(pod, query)).await?);
    let mut text = String::new();
    log.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

/// A client that does not repeat what is refused.
fn impatient(world: &World) -> Client {
    let mut config = kube::Config::new(world.endpoint.parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn refused(client: &Client, pod: &str, query: &str) -> (u16, String) {
    match read(client, pod, query).await.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_log_of_a_pod_is_read_from_its_node_with_the_options_of_kube_apiserver() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_pod(&world, "web-1", "2026-01-01T00:00:00Z", Some("n1")).await;
    let client = world.kube();
    let query = "container=app&tailLines=7&sinceSeconds=60&previous=true";
    let text = read(&client, "web-1", query).await.unwrap();
    assert_eq!(text, "web-1 wrote tail 7 since previous\nmore\n");
    // Its node may keep the log of a pod that is no longer in the store.
    assert_eq!(
        read(&client, "web-gone", "").await.unwrap(),
        "web-gone wrote\nmore\n"
    );
}

#[tokio::test]
async fn a_log_that_there_is_not_is_refused_with_the_cause() {
    let world = World::start().await;
    let client = impatient(&world);
    add_pod(&world, "web-1", "2026-01-01T00:00:00Z", Some("n1")).await;
    let (code, message) = refused(&client, "web-1", "").await;
    assert!(
        code == 503 && message.contains("node n1 does not offer"),
        "{message}"
    );
    Node::default().start(&world).await;
    add_pod(&world, "web-none", "2026-01-01T00:00:00Z", Some("n1")).await;
    add_pod(&world, "web-waits", "2026-01-01T00:00:00Z", None).await;
    for (pod, query, want) in [
        (
            "web-1",
            "container=db",
            (400, "container db is not valid for pod web-1"),
        ),
        (
            "web-1",
            "tailLines=-1",
            (400, "tailLines \"-1\" is not a number"),
        ),
        (
            "web-none",
            "",
            (
                400,
                "pod web-none has no log on node n1: it has not started there",
            ),
        ),
        (
            "web-waits",
            "",
            (400, "pod web-waits does not have a host assigned"),
        ),
        ("other", "", (404, "pods \"other\" not found")),
    ] {
        let (code, message) = refused(&client, pod, query).await;
        assert!(
            code == want.0 && message.starts_with(want.1),
            "{pod}: {code} {message}"
        );
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_stream_of_the_node() {
    let world = World::start().await;
    let node = Node::default();
    node.clone().start(&world).await;
    add_pod(&world, "web-1", "2026-01-01T00:00:00Z", Some("n1")).await;
    let log = world
        .kube()
        .request_stream(log_of("web-1", "follow=true"))
        .await
        .unwrap();
    let mut lines = Box::pin(log).lines();
    assert_eq!(lines.try_next().await.unwrap().unwrap(), "web-1 wrote");
    assert_eq!(node.followed.load(Ordering::SeqCst), 1);
    drop(lines);
    let ended = async {
        while node.followed.load(Ordering::SeqCst) > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TIMEOUT, ended).await.unwrap();
}

#[tokio::test]
async fn kubectl_prints_logs() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_pod(&world, "web-1", "2026-01-01T00:00:00Z", Some("n1")).await;
    let printed = world.kubectl("logs web-1 --tail=3 --since=5m", "").await;
    assert_eq!(printed, "web-1 wrote tail 3 since\nmore\n");
    let printed = world.kubectl("logs web-1 --previous", "").await;
    assert_eq!(printed, "web-1 wrote previous\nmore\n");
}

#[tokio::test]
async fn the_logs_of_an_app_are_those_of_its_newest_or_of_all_pods() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_app(&world).await;
    add_pod(&world, "web-b", "2026-01-01T00:00:00Z", Some("n1")).await;
    add_pod(&world, "web-a", "2026-01-02T00:00:00Z", Some("n1")).await;
    let newest = "web-a wrote tail 1\nmore\n";
    assert_eq!(run(&world, "logs app/web --tail 1").await, newest);
    assert_eq!(
        run(&world, "logs app web --all-pods").await,
        "[pod/web-b] web-b wrote\n[pod/web-b] more\n[pod/web-a] web-a wrote\n[pod/web-a] more\n"
    );
    let one = run(&world, "logs pod/web-b --since 500ms -p").await;
    assert_eq!(one, "web-b wrote since previous\nmore\n");
}

#[tokio::test]
async fn a_log_in_a_pipe_is_what_the_pod_wrote_and_on_a_terminal_it_is_harmless() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_pod(&world, "web-raw", "2026-01-01T00:00:00Z", Some("n1")).await;
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["--endpoint", &world.endpoint, "logs", "pod/web-raw"])
        .output()
        .await
        .unwrap();
    assert_eq!(output.stdout, RAW);
    let shown = run_on_screen(&world.endpoint, "logs pod/web-raw", Some(80))
        .await
        .1;
    assert_eq!(shown, "\x1b[31mred^[[2J \u{fffd}\x1b[0m\r\nend");
}

#[tokio::test]
async fn the_logs_of_a_sleeping_app_are_those_of_its_last_pod() {
    let world = World::start().await;
    add_app(&world).await;
    let (exit, text) = failing(&world, "logs app/web").await;
    assert_eq!(exit, Exit::No);
    assert!(
        text.contains("error[DM1305]: no pod of app default/web has a log"),
        "{text}"
    );
    assert!(
        text.contains("try: send it a request, which wakes it"),
        "{text}"
    );
    let runs = vec![ended("web-new", 2_000), ended("web-old", 1_000)];
    let node = Node {
        runs,
        ..Node::default()
    };
    node.start(&world).await;
    assert_eq!(run(&world, "logs app/web").await, "web-new wrote\nmore\n");
    assert_eq!(
        run(&world, "logs app/web --previous").await,
        "web-old wrote\nmore\n"
    );
    assert_eq!(failing(&world, "logs app/other").await.0, Exit::NotFound);
    assert_eq!(failing(&world, "logs node/n1").await.0, Exit::Usage);
}

#[tokio::test]
async fn pods_that_start_while_the_logs_of_their_app_are_followed_are_followed_too() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_app(&world).await;
    add_pod(&world, "web-a", "2026-01-01T00:00:00Z", Some("n1")).await;
    let mut watch = Watch::start(&world.endpoint, "logs app/web -f --all-pods --tail 5");
    for line in ["web-a wrote tail 5", "more"] {
        assert_eq!(watch.line().await, format!("[pod/web-a] {line}"));
    }
    add_pod(&world, "web-b", "2026-01-02T00:00:00Z", Some("n1")).await;
    for line in ["web-b wrote tail 5", "more"] {
        assert_eq!(watch.line().await, format!("[pod/web-b] {line}"));
    }
}

#[tokio::test]
async fn when_the_log_of_a_pod_ends_that_of_the_next_one_follows() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_app(&world).await;
    let mut watch = Watch::start(&world.endpoint, "logs app/web -f");
    add_pod(&world, "web-a-short", "2026-01-01T00:00:00Z", Some("n1")).await;
    for line in ["web-a-short wrote", "more"] {
        assert_eq!(watch.line().await, line);
    }
    // One that never starts delays no other.
    add_pod(&world, "web-none", "2026-01-02T00:00:00Z", Some("n1")).await;
    add_pod(&world, "web-b", "2026-01-03T00:00:00Z", Some("n1")).await;
    for line in ["web-b wrote", "more"] {
        assert_eq!(watch.line().await, line);
    }
}

#[tokio::test]
async fn the_log_of_a_pod_that_has_not_started_says_so() {
    let world = World::start().await;
    Node::default().start(&world).await;
    add_pod(&world, "web-none", "2026-01-01T00:00:00Z", Some("n1")).await;
    let (exit, text) = failing(&world, "logs app/web").await;
    assert_eq!(exit, Exit::No);
    assert!(text.contains("it has not started there"), "{text}");
    assert!(text.contains("try: dormouse get pod web-none"), "{text}");
}

#[tokio::test]
async fn while_all_logs_of_a_node_are_read_its_list_is_not_empty_and_a_further_log_is_not_called_missing()
 {
    let world = World::start().await;
    add_app(&world).await;
    let node = Node {
        runs: vec![ended("web-old", 1_000)],
        ..Node::default()
    };
    node.start(&world).await;
    add_pod(&world, "web-1", "2026-01-01T00:00:00Z", Some("n1")).await;
    let client = impatient(&world);
    let mut followed = Vec::new();
    for _ in 0..LOGS_PER_NODE_MAX {
        let log = client.request_stream(log_of("web-1", "follow=true")).await;
        followed.push(log.unwrap());
    }
    let busy = "16 logs of node n1 are being read, which is the limit";
    for pod in ["web-1", "web-old"] {
        let (code, message) = refused(&client, pod, "").await;
        assert!(code == 503 && message.contains(busy), "{message}");
    }
    let path = "/apis/dormouse.dev/v1alpha1/namespaces/default/apps/web/logs";
    let list = client.request_text(Request::get(path).body(Vec::new()).unwrap());
    let list = timeout(TIMEOUT, list).await.unwrap().unwrap();
    assert!(list.contains("web-old"), "{list}");
    drop(followed);
}

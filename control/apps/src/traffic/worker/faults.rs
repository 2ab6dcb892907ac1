//! Plans that are executed: a store in this process, behind a channel that can fail one call.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dormouse_cluster::app::{TRAFFIC_READY, TrafficMove};
use dormouse_cluster::{App, AppStatus, Channel, Object, TrafficStatus, channel, children};
use dormouse_fleet::ServerConfig;
use dormouse_fleet::proto::NodeConfig;
use dormouse_store::Store;
use dormouse_store::server::{Options, Server};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tower::{ServiceExt, service_fn};

use super::*;
use crate::config::Config;
use crate::controller::checks::Checks;
use crate::epoch;
use crate::shards::Shards;

/// No call fails.
const NEVER: usize = usize::MAX;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The store does not get it.
    Refused,
    /// Its response is lost.
    Lost,
    /// Another writer changes the app before it.
    Raced,
}

struct World {
    worker: Worker,
    client: Client,
    /// Calls until the one that fails.
    until: Arc<AtomicUsize>,
    checks: Checks,
    /// The revision of the store with the split that names no child; 0 before that.
    split_at: Arc<AtomicU64>,
}

/// A channel that notes when the split has changed.
fn noting(inner: Channel, client: Client, split_at: Arc<AtomicU64>) -> Channel {
    Channel::new(service_fn(move |request| {
        let (inner, client, split_at) = (inner.clone(), client.clone(), Arc::clone(&split_at));
        async move {
            let response = inner.oneshot(request).await;
            let app: Option<App> = client.get(&web()).await.unwrap();
            let app = app.filter(|app| app.status.as_ref().unwrap().traffic.is_empty());
            if let Some(app) = app.filter(|_| split_at.load(Ordering::Relaxed) == 0) {
                split_at.store(app.revision(), Ordering::Relaxed);
            }
            response
        }
    }))
}

/// A channel of which one call fails.
fn faulty(inner: Channel, client: Client, fault: Fault, until: Arc<AtomicUsize>) -> Channel {
    Channel::new(service_fn(move |request| {
        let (inner, client, until) = (inner.clone(), client.clone(), Arc::clone(&until));
        async move {
            let left = until.load(Ordering::Relaxed);
            if left == NEVER {
                return inner.oneshot(request).await;
            }
            until.store(left.checked_sub(1).unwrap_or(NEVER), Ordering::Relaxed);
            if left > 0 {
                return inner.oneshot(request).await;
            }
            if fault == Fault::Raced {
                change(&client).await;
                return inner.oneshot(request).await;
            }
            if fault == Fault::Lost {
                inner.oneshot(request).await?;
            }
            Err(Status::unavailable("the connection was lost"))
        }
    }))
}

/// Another writer changes the app.
async fn change(client: &Client) {
    let write = |app: &mut App| {
        app.status.get_or_insert_default().ready += 1;
        true
    };
    client.modify(&web(), write).await.unwrap();
}

fn web() -> Key {
    Key::new("shop", "web")
}

impl World {
    /// An app whose manifest divides nothing any more, and its child, which sleeps and has half of the traffic yet.
    async fn new(fault: Fault) -> Self {
        let none = Vec::<TcpListener>::new();
        let shutdown = CancellationToken::new();
        let server = Server::new(none, Store::new(), Options::default(), shutdown.clone()).unwrap();
        let until = Arc::new(AtomicUsize::new(NEVER));
        let services = channel::in_process(server.in_process());
        let client = Client::over(services.clone()).await.unwrap();
        let split_at = Arc::new(AtomicU64::new(0));
        let noting = noting(services, client.clone(), Arc::clone(&split_at));
        let faulty = Client::over(faulty(noting, client.clone(), fault, Arc::clone(&until)));
        let taken = epoch::take(&client).await.unwrap();
        let store = faulty
            .await
            .unwrap()
            .fenced(epoch::is_current(taken.number));
        let ranges = vec!["fd00:10::/108".parse().unwrap()];
        let config = Config {
            ranges: ranges.clone(),
            scale_to_zero_grace: Duration::from_secs(1),
            tick: Duration::from_secs(2),
            epoch: taken.number,
            node_lease: Duration::from_hours(1),
            limits: crate::Limits::default(),
        };
        // Until an hour after its start, nodes may have entries of an earlier control.
        let mut fleet = ServerConfig::new(taken.number, NodeConfig::default());
        fleet.lease = Duration::from_hours(1);
        let (fleet, _events) = dormouse_fleet::start(fleet, shutdown);
        let clients = Clients {
            claims: Claims::new(store.clone(), ranges),
            store,
            fleet,
            shared: Arc::new(Shared::new(config, Shards::new(1), 1)),
        };
        let mut checks = Checks::default();
        let mut worker = Worker::new(clients, Arc::default(), checks.add());
        divided(&client).await;
        let parent = web();
        let touch = Touch {
            app: parent,
            child: Some((1, true)),
        };
        let app = worker.children.touched(touch);
        // From before the split was in force.
        let mut known = Known::since(0, Timestamp::UNIX_EPOCH);
        known.settled = 1_000;
        worker.known.insert(app, known);
        Self {
            worker,
            client,
            until,
            checks,
            split_at,
        }
    }

    /// Plans the app until all is done but what waits for nodes.
    async fn run(&mut self) {
        let worker = &mut self.worker;
        worker.queue.insert(web());
        for _ in 0..20 {
            worker.start();
            if worker.running.is_empty() {
                return;
            }
            let done = worker.tasks.join_next().await.unwrap().unwrap();
            worker.done(done);
            // Each write makes a change, and a plan that failed is repeated: at once here.
            worker.due.remove(&web());
            let app: App = self.client.get(&web()).await.unwrap().unwrap();
            let has_work = app.status.unwrap().split_revision.is_some();
            let waits = worker
                .known
                .get(&web())
                .is_some_and(|known| known.settling.is_some());
            if has_work || !waits {
                worker.queue.insert(web());
            }
        }
    }

    /// The nodes acknowledge what is waited for.
    async fn acknowledge(&mut self) {
        let version = self.worker.known[&web()].settling.unwrap();
        self.worker.done(Done::Settled(web(), version));
        self.run().await;
    }

    async fn child(&self) -> Option<App> {
        self.client.get(&Key::new("shop", "web-1")).await.unwrap()
    }

    async fn split(&self) -> Vec<TrafficStatus> {
        let app: App = self.client.get(&web()).await.unwrap().unwrap();
        app.status.unwrap().traffic
    }
}

/// Writes the app and its child.
async fn divided(client: &Client) {
    let mut app: App = serde_json::from_value(json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": "web", "namespace": "shop", "uid": "a", "generation": 1},
        "spec": {"vip": "fd00:10::1", "port": 80, "container": {"name": "app", "image": "2"}},
        "status": {"vip": "fd00:10::1", "revision": 2, "readyRevision": 2, "splitRevision": 2},
    }))
    .unwrap();
    let target = |revision, vip: &str, latest| TrafficStatus {
        revision,
        percent: 50,
        tag: None,
        vip: vip.parse().unwrap(),
        latest,
    };
    let status: &mut AppStatus = app.status.as_mut().unwrap();
    status.traffic = vec![
        target(1, "fd00:10::2", false),
        target(2, "fd00:10::1", true),
    ];
    let mut child = children::child(&app, 1, app.spec.template(), Some(0));
    child.metadata.uid = Some("c".to_owned());
    child.spec.vip = Some("fd00:10::2".parse().unwrap());
    client.create(&app).await.unwrap();
    client.create(&child).await.unwrap();
}

#[tokio::test]
async fn whichever_call_fails_a_child_is_deleted_only_after_nodes_have_the_split_without_it() {
    for fault in [Fault::Refused, Fault::Lost, Fault::Raced] {
        let mut calls = 0;
        loop {
            let mut world = World::new(fault).await;
            world.until.store(calls, Ordering::Relaxed);
            world.run().await;
            let case = format!("{fault:?} {calls}");
            assert!(
                world.child().await.is_some(),
                "{case}: nodes may use the old split"
            );
            assert_eq!(world.split().await, [], "{case}");
            let known = world.worker.known[&web()];
            let version = known.settling.unwrap();
            let split_at = world.split_at.load(Ordering::Relaxed);
            assert!(split_at > 0 && version >= split_at, "{case}");
            let has_failed = world.until.load(Ordering::Relaxed) == NEVER;
            world.acknowledge().await;
            if world.child().await.is_some() {
                assert!(!has_failed, "{case}");
                // The deletion has failed: nodes are asked once more.
                world.acknowledge().await;
            }
            assert!(world.child().await.is_none(), "{case}");
            if !has_failed && world.until.load(Ordering::Relaxed) != NEVER {
                break;
            }
            calls += 1;
        }
        assert!(calls > 5, "{calls} calls");
    }
}

#[tokio::test]
async fn a_control_that_was_replaced_changes_no_split_and_no_child() {
    let mut world = World::new(Fault::Refused).await;
    let before = world.split().await;
    epoch::take(&world.client).await.unwrap();
    world.run().await;
    assert_eq!(world.split().await, before);
    assert!(world.child().await.is_some());
    assert!(
        !world.worker.known.contains_key(&web()),
        "nodes are asked again"
    );
}

#[tokio::test]
async fn a_wait_that_an_earlier_control_saw_is_not_over_with_the_first_plan() {
    let mut world = World::new(Fault::Refused).await;
    let awake = |app: &mut App| {
        let status = app.status.get_or_insert_default();
        (status.ready, status.wanted) = (15, 15);
        status.traffic_move = Some(TrafficMove {
            pods: 30,
            since: None,
            waits: Some(MicroTime(Timestamp::UNIX_EPOCH)),
        });
        status.conditions = vec![Condition {
            type_: TRAFFIC_READY.to_owned(),
            status: "Unknown".to_owned(),
            reason: "RevisionNotReady".to_owned(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }];
        true
    };
    for key in [Key::new("shop", "web-1"), web()] {
        world.client.modify(&key, awake).await.unwrap();
    }
    let before = world.split().await;
    world.run().await;
    assert_eq!(world.split().await, before, "15 of 30 pods are ready");
}

#[tokio::test]
async fn the_loop_answers_the_check_of_readiness_until_it_ends() {
    let world = World::new(Fault::Refused).await;
    let running = tokio::spawn(world.worker.run());
    assert!(world.checks.run().await);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!world.checks.run().await);
}

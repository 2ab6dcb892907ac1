//! The lifecycle of an app over the real store, scheduler, fleet stream and activator, with a simulated node.
#![expect(clippy::unwrap_used, reason = "a test's own set-up fails by panicking")]

use std::time::Duration;

use dormouse_activator::link;
use dormouse_apps::{Config, Handle, Parts, epoch};
use dormouse_cluster::app::PROGRESSING;
use dormouse_cluster::claim::Claims;
use dormouse_cluster::{App, Client, ClientError, Key, State, channel, history, reflector};
use dormouse_fleet::client::{Link, connect, endpoint};
use dormouse_fleet::proto::{
    self, Beat, Entry, Hello, PodSpec, PodStatus, Stages, Up, Woke, entry::Mode, pod_status::Phase,
};
use dormouse_fleet::{Backend, Boottime, Incoming, ServerConfig};
use dormouse_scheduler::SchedulerClient;
use dormouse_store::{Store, server};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Timeout of every wait.
const DEADLINE: Duration = Duration::from_mins(1);
/// The node lease.
const LEASE: Duration = Duration::from_secs(2);
const VIP: u32 = 1;
const POD_ADDRESS: &str = "2001:db8:d0::1:0:7";
/// The address of the second pod.
const NEXT_ADDRESS: &str = "2001:db8:d0::1:0:8";

struct World {
    client: Client,
    apps: Handle,
    node: Node,
    _shutdown: DropGuard,
}

/// A simulated node: acknowledges all messages, and only reports pods as running.
struct Node {
    control: String,
    link: Link,
    /// The pods that are ready.
    ready: Vec<PodStatus>,
    entry: Option<Entry>,
    /// All entries since the last look.
    entries: Vec<Entry>,
    pods: Vec<PodSpec>,
    stopped: Vec<String>,
}

impl World {
    async fn start() -> Self {
        let shutdown = CancellationToken::new();
        let (listener, address) = listen().await;
        tokio::spawn(server::serve(listener, Store::new(), shutdown.clone()));
        let client = Client::connect(&address).await.unwrap();
        let (listener, scheduler) = listen().await;
        tokio::spawn(dormouse_scheduler::serve(
            listener,
            client.clone(),
            shutdown.clone(),
        ));
        let taken = epoch::take(&client).await.unwrap().number;
        let mut config = ServerConfig::new(taken, proto::NodeConfig::default());
        config.lease = LEASE;
        let (fleet, fleet_events) = dormouse_fleet::start(config, shutdown.clone());
        let (holder, held) = (client.clone(), fleet.clone());
        tokio::spawn(async move { epoch::hold(&holder, taken, LEASE, &held).await });
        let (listener, control) = listen().await;
        tokio::spawn(dormouse_fleet::serve(
            Incoming::new(listener, 10),
            fleet.clone(),
            shutdown.clone(),
        ));
        let acting = "2001:db8:d0::a1:0:0".parse().unwrap();
        let (activator, reports) = dormouse_activator::new(dormouse_activator::Config::new(acting));
        let (hub, link_events) = link::start(taken);
        let attachment = link::Attachment::new(activator, reports, "test".into());
        tokio::spawn(attachment.follow(hub.clone(), shutdown.clone()));
        let kinds = reflector::Kinds::All;
        let changes = reflector::start(client.clone(), kinds, shutdown.clone());
        let ranges = vec!["fd00:10::/108".parse().unwrap()];
        let parts = Parts {
            claims: Claims::new(client.clone(), ranges.clone()),
            client: client.clone(),
            changes,
            scheduler: SchedulerClient::new(channel::remote(&scheduler).unwrap()),
            fleet,
            fleet_events,
            hub,
            link_events,
        };
        let config = Config {
            ranges,
            scale_to_zero_grace: Duration::from_secs(1),
            tick: Duration::from_secs(2),
            epoch: taken,
            node_lease: LEASE,
            limits: dormouse_apps::Limits::default(),
        };
        let (apps, controller) = dormouse_apps::start(config, parts, shutdown.clone());
        tokio::spawn(controller);
        let node = Node::join(&control).await;
        Self {
            client,
            apps,
            node,
            _shutdown: shutdown.drop_guard(),
        }
    }

    async fn create_app(&self) {
        let app: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "docs", "namespace": "default", "uid": "docs-uid"},
            "spec": {
                "vip": "fd00:10::1", "port": 18_080, "targetPort": 8000,
                "container": {"name": "app", "command": ["serve"]},
                "scale": {"window": "6s", "targetBurstCapacity": 0, "target": 10},
            },
        }))
        .unwrap();
        self.client.create(&app).await.unwrap();
    }

    async fn app(&self) -> App {
        self.client
            .get(&Key::new("default", "docs"))
            .await
            .unwrap()
            .unwrap()
    }

    /// Changes the app; a change of its template is [`World::release`].
    async fn change(&self, change: impl Fn(&mut App) + Send + Sync) {
        let key = Key::new("default", "docs");
        let change = |app: &mut App| {
            change(app);
            true
        };
        self.client.modify(&key, change).await.unwrap();
    }

    /// The app gets another image, as the API writes it.
    async fn release(&self, image: &str) {
        loop {
            let old = self.app().await;
            let mut new = old.clone();
            new.spec.container.image = Some(image.to_owned());
            match history::replace(&self.client, &old, new).await {
                // The controller has written the status meanwhile.
                Err(ClientError::Conflict { .. }) => {}
                written => return drop(written.unwrap()),
            }
        }
    }

    async fn pods(&self) -> Vec<Pod> {
        self.client.list(Some("default")).await.unwrap().items
    }
}

impl Node {
    async fn join(control: &str) -> Self {
        Self {
            link: Self::open(control, &[]).await,
            control: control.to_owned(),
            ready: Vec::new(),
            entry: None,
            entries: Vec::new(),
            pods: Vec::new(),
            stopped: Vec::new(),
        }
    }

    async fn open(control: &str, ready: &[PodStatus]) -> Link {
        let channel = connect(endpoint(control).unwrap()).await.unwrap();
        let status = proto::NodeStatus {
            prefix: "2001:db8:d0::1:0:0/96".into(),
            address: "2001:db8:d0::1:0:1".into(),
            pods: 10,
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
            runs_pods: true,
            ..Default::default()
        };
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap()
            .trim()
            .to_owned();
        let hello = Hello {
            node: "n1".into(),
            boot_id,
            follows: vec![VIP],
            status: Some(status),
            version: "test".into(),
        };
        let first = Up {
            hello: Some(hello),
            beat: Some(Beat {
                at_ns: Boottime::now().0,
            }),
            pods: ready.to_vec(),
            ..Default::default()
        };
        Link::open(channel, first).await.unwrap()
    }

    /// Takes messages in, and acknowledges them, until something is as wished. A stream that ends, on a machine with too much to do,
    /// is opened again as an agent does.
    async fn until(&mut self, what: &str, wished: impl Fn(&Self) -> bool) {
        let mut beat = tokio::time::interval(Duration::from_millis(300));
        let all = async {
            while !wished(self) {
                tokio::select! {
                    down = self.link.receive() => {
                        let Ok(down) = down else {
                            self.link = Self::open(&self.control, &self.ready).await;
                            continue;
                        };
                        self.entries.extend(down.entries.iter().filter(|entry| entry.vip == VIP).cloned());
                        self.entry = self.entries.last().cloned().or(self.entry.take());
                        self.stopped.extend(down.run.iter().filter(|spec| spec.stop).map(|spec| spec.name.clone()));
                        self.pods.extend(down.run.into_iter().filter(|spec| !spec.stop));
                        self.say(Up { applied: down.seq, ..Default::default() });
                    }
                    _ = beat.tick() => self.beat(),
                }
            }
        };
        assert!(
            tokio::time::timeout(DEADLINE, all).await.is_ok(),
            "not so within {DEADLINE:?}: {what}"
        );
    }

    /// A beat, and a miss of the VIP as long as it does not exist.
    fn beat(&self) {
        let missing = self.entry.as_ref().is_none_or(|entry| entry.gone);
        self.say(Up {
            beat: Some(Beat {
                at_ns: Boottime::now().0,
            }),
            want: missing.then_some(VIP).into_iter().collect(),
            ..Default::default()
        });
    }

    /// Sends a message, unless the stream has ended.
    fn say(&self, up: Up) {
        drop(self.link.send(up));
    }

    fn packet(&self) {
        self.say(Up {
            woke: vec![Woke {
                vip: VIP,
                at_ns: Boottime::now().0,
                port: 18_080,
                protocol: 6,
            }],
            ..Default::default()
        });
    }

    fn ready(&mut self, spec: &PodSpec) {
        let now = Boottime::now().0;
        let mut status = PodStatus {
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            uid: spec.uid.clone(),
            address: if self.ready.is_empty() {
                POD_ADDRESS
            } else {
                NEXT_ADDRESS
            }
            .into(),
            ready: true,
            stages: Some(Stages {
                received_ns: now,
                cni_begin_ns: now,
                cni_end_ns: now,
                started_ns: now,
                ready_ns: now,
            }),
            ..Default::default()
        };
        status.set_phase(Phase::Running);
        self.ready.push(status.clone());
        self.say(Up {
            pods: vec![status],
            ..Default::default()
        });
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

fn serves(node: &Node) -> bool {
    node.entry
        .as_ref()
        .is_some_and(|entry| entry.mode() == Mode::Serve)
}

fn asleep(node: &Node) -> bool {
    node.entry
        .as_ref()
        .is_some_and(|entry| entry.asleep && !entry.gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_wakes_on_a_packet_serves_sleeps_again_and_is_deleted() {
    let mut world = World::start().await;
    world.create_app().await;
    world
        .node
        .until("the node knows that the app sleeps", asleep)
        .await;
    assert_eq!(world.app().await.status.unwrap().state, State::Asleep);

    world.node.packet();
    world
        .node
        .until("the node is to run a pod", |node| !node.pods.is_empty())
        .await;
    let spec = world.node.pods[0].clone();
    world.node.ready(&spec);
    world.node.until("the node sends to the pod", serves).await;
    let entry = world.node.entry.clone().unwrap();
    let backends = Backend::unpack(&entry.backends).unwrap();
    assert_eq!(
        (backends[0].address(), backends[0].port),
        (POD_ADDRESS.parse().unwrap(), 8_000)
    );
    let status = world.app().await.status.unwrap();
    assert_eq!(
        (status.state, status.ready, status.wanted),
        (State::Awake, 1, 1)
    );
    assert!(status.last_wake.is_some());
    let wakes = world.apps.wakes("default", "docs").unwrap();
    let stages: Vec<_> = wakes["items"][0]["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["name"].clone())
        .collect();
    assert_eq!(stages, ["see", "decide", "place", "wire", "start", "ready"]);
    let explanation = world.apps.explain("default", "docs").unwrap().to_string();
    assert!(
        explanation.contains("target-burst-capacity is 0"),
        "{explanation}"
    );

    world
        .node
        .until("the idle pod is stopped", |node| !node.stopped.is_empty())
        .await;
    assert_eq!(world.node.stopped, [spec.name]);
    world
        .node
        .until("the node knows that the app sleeps again", asleep)
        .await;
    assert!(world.pods().await.is_empty());

    world
        .client
        .delete::<App>(
            &Key::new("default", "docs"),
            &dormouse_cluster::Guard::default(),
        )
        .await
        .unwrap();
    world
        .node
        .until("the node knows that the app is gone", |node| {
            node.entry.as_ref().is_some_and(|entry| entry.gone)
        })
        .await;
}

fn serves_from(address: &str) -> impl Fn(&Node) -> bool {
    let address: std::net::Ipv6Addr = address.parse().unwrap();
    move |node| {
        let backends = node
            .entry
            .as_ref()
            .map(|entry| Backend::unpack(&entry.backends).unwrap());
        backends.is_some_and(|all| all.len() == 1 && all[0].address() == address)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_takes_no_ready_pod_away_before_its_successor_is_ready() {
    let mut world = World::start().await;
    world.create_app().await;
    world.node.until("the node knows the app", asleep).await;
    world.change(|app| app.spec.scale.min = Some(1)).await;
    world
        .node
        .until("the node is to run a pod", |node| !node.pods.is_empty())
        .await;
    let first = world.node.pods[0].clone();
    world.node.ready(&first);
    world
        .node
        .until("the node sends to the pod", serves_from(POD_ADDRESS))
        .await;
    world.node.entries.clear();
    Box::pin(world.release("docs:2")).await;
    world
        .node
        .until("the node is to run a second pod", |node| {
            node.pods.len() == 2
        })
        .await;
    assert!(world.node.stopped.is_empty());
    let second = world.node.pods[1].clone();
    world.node.ready(&second);
    world
        .node
        .until("the first pod is stopped", |node| !node.stopped.is_empty())
        .await;
    assert_eq!(world.node.stopped, [first.name]);
    assert!(serves_from(NEXT_ADDRESS)(&world.node));
    let empty = world
        .node
        .entries
        .iter()
        .find(|entry| entry.backends.is_empty());
    assert_eq!(empty, None, "the app was without a pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_is_never_ready_leaves_the_earlier_one_serving_and_is_reported() {
    let mut world = World::start().await;
    world.create_app().await;
    let settings = |app: &mut App| {
        app.spec.scale.min = Some(1);
        app.spec.progress_deadline_seconds = 1;
    };
    world.node.until("the node knows the app", asleep).await;
    world.change(settings).await;
    world
        .node
        .until("the node is to run a pod", |node| !node.pods.is_empty())
        .await;
    let first = world.node.pods[0].clone();
    world.node.ready(&first);
    world
        .node
        .until("the node sends to the pod", serves_from(POD_ADDRESS))
        .await;
    Box::pin(world.release("docs:2")).await;
    let (client, key) = (world.client.clone(), Key::new("default", "docs"));
    let overdue = tokio::spawn(async move {
        loop {
            let app: App = client.get(&key).await.unwrap().unwrap();
            let status = app.status.unwrap_or_default();
            let condition = status.condition(PROGRESSING);
            if let Some(condition) = condition.filter(|condition| condition.status == "False") {
                return (condition.clone(), status.ready, status.ready_revision);
            }
            tokio::task::yield_now().await;
        }
    });
    world
        .node
        .until("the rollout is overdue", |_| overdue.is_finished())
        .await;
    let (condition, ready, ready_revision) = overdue.await.unwrap();
    assert_eq!(condition.reason, "ProgressDeadlineExceeded");
    let message = "revision 2: no progress within 1 s, 0 of 1 pods are ready; ready pods of earlier revisions: 1";
    assert_eq!(
        (condition.message.as_str(), ready, ready_revision),
        (message, 1, Some(1))
    );
    assert!(world.node.stopped.is_empty() && serves_from(POD_ADDRESS)(&world.node));

    // The pod that serves is replaced by one of its own revision.
    let key = Key::new("default", &first.name);
    let any = dormouse_cluster::Guard::default();
    world.client.delete::<Pod>(&key, &any).await.unwrap();
    world
        .node
        .until("the node is to run a third pod", |node| {
            node.pods.len() == 3
        })
        .await;
    let third: Pod = serde_json::from_slice(&world.node.pods[2].pod).unwrap();
    assert_eq!(
        third.metadata.labels.unwrap()["dormouse.dev/revision"],
        "docs-1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_key_is_deleted_is_stopped_and_replaced() {
    let mut world = World::start().await;
    world.create_app().await;
    world.node.until("the node knows the app", asleep).await;
    world.node.packet();
    world
        .node
        .until("the node is to run a pod", |node| !node.pods.is_empty())
        .await;
    let spec = world.node.pods[0].clone();
    world.node.ready(&spec);
    world.node.until("the node sends to the pod", serves).await;
    let key = Key::new("default", &spec.name);
    world
        .client
        .delete::<Pod>(&key, &dormouse_cluster::Guard::default())
        .await
        .unwrap();
    world
        .node
        .until("the pod is stopped", |node| {
            node.stopped.contains(&spec.name)
        })
        .await;
    world
        .node
        .until("another one is to run", |node| {
            node.pods.iter().any(|other| other.name != spec.name)
        })
        .await;
}

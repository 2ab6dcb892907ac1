//! The reflector and the client over a real store: the view is complete and current, also after the
//! connection was lost.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed call fails the test"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dormouse_cluster::{
    App, AppSpec, Change, Client, ClientError, Guard, Key, Object,
    claim::Claims,
    reflector::{self, Kinds},
};
use dormouse_store::{Store, server};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The objects that the changes yield.
#[derive(Default)]
struct View {
    apps: BTreeMap<Key, App>,
    pods: BTreeSet<Key>,
    nodes: BTreeSet<Key>,
    listed: bool,
    /// Apps of the list in progress.
    seen: BTreeSet<Key>,
}

impl View {
    fn apply(&mut self, change: &Change) {
        let set = |names: &mut BTreeSet<Key>, key: &Key, exists: bool| {
            if exists {
                names.insert(key.clone());
            } else {
                names.remove(key);
            }
        };
        match change {
            Change::App(key, Some(app)) => {
                self.seen.insert(key.clone());
                self.apps.insert(key.clone(), app.app().unwrap());
            }
            Change::App(key, None) => drop(self.apps.remove(key)),
            Change::Pod(key, pod) => set(&mut self.pods, key, pod.is_some()),
            Change::Node(key, node) => set(&mut self.nodes, key, node.is_some()),
            Change::Listing => (self.listed, self.seen) = (false, BTreeSet::new()),
            Change::Listed => {
                self.apps.retain(|key, _| self.seen.contains(key));
                self.listed = true;
            }
        }
    }
}

struct World {
    client: Client,
    store: Store,
    port: u16,
    serving: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = Client::connect(&format!("http://[::1]:{port}"))
            .await
            .unwrap();
        let (store, serving) = (Store::default(), CancellationToken::new());
        tokio::spawn(server::serve(listener, store.clone(), serving.clone()));
        Self {
            client,
            store,
            port,
            serving,
        }
    }

    /// Ends the server and starts another one over the same store.
    async fn restart(&mut self) {
        let listener = self.stop().await;
        self.serve(listener);
    }

    /// Ends the server and takes its port.
    async fn stop(&mut self) -> TcpListener {
        self.serving.cancel();
        self.serving = CancellationToken::new();
        loop {
            match TcpListener::bind(("::1", self.port)).await {
                Ok(listener) => return listener,
                Err(_still_taken) => tokio::task::yield_now().await,
            }
        }
    }

    fn serve(&self, listener: TcpListener) {
        let (store, serving) = (self.store.clone(), self.serving.clone());
        tokio::spawn(server::serve(listener, store, serving));
    }

    /// A client of another server over the same store.
    async fn another_client(&self) -> Client {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        self.serve(listener);
        Client::connect(&address).await.unwrap()
    }

    /// Starts a reflector; returns the listed view, and the changes after it.
    async fn reflect(&self, kinds: Kinds) -> (View, mpsc::Receiver<reflector::Batch>) {
        let client = self.client.clone();
        let mut changes = reflector::start(client, kinds, CancellationToken::new());
        let mut view = View::default();
        until(&mut view, &mut changes, |view| view.listed).await;
        (view, changes)
    }

    fn claims(&self) -> Claims {
        Claims::new(self.client.clone(), vec!["fd00:10::/123".parse().unwrap()])
    }
}

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("shop".to_owned());
    pod
}

fn app(name: &str) -> App {
    let spec: AppSpec =
        serde_json::from_value(serde_json::json!({"container": {"name": "app"}})).unwrap();
    let mut app = App::new(name, spec);
    app.metadata.namespace = Some("shop".to_owned());
    app
}

/// Applies changes to the view until `done` holds.
async fn until(
    view: &mut View,
    changes: &mut mpsc::Receiver<reflector::Batch>,
    done: impl Fn(&View) -> bool,
) {
    while !done(view) {
        let batch = timeout(TIMEOUT, changes.recv())
            .await
            .expect("no change within the timeout")
            .expect("the reflector ended");
        for (_, change) in batch {
            view.apply(&change);
        }
    }
}

#[tokio::test]
async fn the_view_is_complete_at_the_start_and_changes_of_every_kind_follow() {
    let world = World::start().await;
    world.client.create(&pod("a")).await.unwrap();
    let (mut view, mut changes) = world.reflect(Kinds::All).await;
    assert_eq!(
        view.pods.iter().collect::<Vec<_>>(),
        [&Key::new("shop", "a")]
    );
    let mut node = Node::default();
    node.metadata.name = Some("n1".to_owned());
    world.client.create(&node).await.unwrap();
    let app = world.claims().create(app("web")).await.unwrap();
    world
        .client
        .delete::<Pod>(&Key::new("shop", "a"), &Guard::default())
        .await
        .unwrap();
    until(&mut view, &mut changes, |view| view.pods.is_empty()).await;
    assert_eq!(view.apps[&Key::new("shop", "web")], app);
    assert!(view.nodes.contains(&Key::cluster_scoped("n1")));
}

#[tokio::test]
async fn a_lost_connection_leaves_no_gap() {
    let mut world = World::start().await;
    let (mut view, mut changes) = world.reflect(Kinds::All).await;
    world.client.create(&pod("a")).await.unwrap();
    until(&mut view, &mut changes, |view| view.pods.len() == 1).await;
    world.restart().await;
    create_with_retries(&world.client, &pod("b")).await;
    until(&mut view, &mut changes, |view| view.pods.len() == 2).await;
}

#[tokio::test]
async fn the_changes_end_when_the_stores_revision_went_back() {
    let mut world = World::start().await;
    world.client.create(&pod("a")).await.unwrap();
    let (_view, mut changes) = world.reflect(Kinds::All).await;
    world.store = Store::default();
    world.restart().await;
    let next = timeout(TIMEOUT, changes.recv()).await.expect("still open");
    assert_eq!(next, None);
}

/// Creates a pod, with retries: the first requests after a restart may use the old connection.
async fn create_with_retries(client: &Client, pod: &Pod) {
    let attempts = async {
        loop {
            match client.create(pod).await {
                Ok(_) | Err(ClientError::AlreadyExists { .. }) => return,
                Err(_away) => tokio::task::yield_now().await,
            }
        }
    };
    timeout(TIMEOUT, attempts)
        .await
        .expect("the store is not reachable again");
}

#[tokio::test]
async fn a_malformed_object_does_not_prevent_a_list() {
    let world = World::start().await;
    world.client.create(&pod("a")).await.unwrap();
    let garbage = Txn::new().and_then([TxnOp::put("/registry/pods/shop/bad", "no json", None)]);
    world.client.txn(garbage).await.unwrap();
    let (view, _changes) = world.reflect(Kinds::All).await;
    assert_eq!(view.pods.len(), 1);
    assert_eq!(world.client.list::<Pod>(None).await.unwrap().items.len(), 1);
    let read = world.client.get::<Pod>(&Key::new("shop", "bad")).await;
    assert!(matches!(read, Err(ClientError::Malformed { .. })));
}

#[tokio::test]
async fn a_write_is_refused_unless_its_guard_holds() {
    let world = World::start().await;
    let made = world.client.create(&pod("a")).await.unwrap();
    assert!(matches!(
        world.client.create(&pod("a")).await,
        Err(ClientError::AlreadyExists { .. })
    ));
    let stale = Guard::at(made.revision() + 1);
    let refused = world.client.delete::<Pod>(&made.key(), &stale).await;
    assert!(matches!(refused, Err(ClientError::Conflict { .. })));
    let at = Guard::at(made.revision());
    world.client.delete::<Pod>(&made.key(), &at).await.unwrap();
    let gone = world
        .client
        .delete::<Pod>(&made.key(), &Guard::default())
        .await;
    assert!(matches!(gone, Err(ClientError::NotFound { .. })));
}

#[tokio::test]
async fn a_fenced_client_writes_nothing_once_its_fence_does_not_hold() {
    let world = World::start().await;
    let fenced = world
        .client
        .fenced(Compare::value("fence", CompareOp::Equal, "1"));
    let set = async |value: &str| {
        let txn = Txn::new().and_then([TxnOp::put("fence", value, None)]);
        world.client.txn(txn).await.unwrap();
    };
    set("1").await;
    let made = fenced.create(&pod("a")).await.unwrap();
    let (key, any) = (made.key(), Guard::default());
    let label = |pod: &mut Pod| {
        pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        true
    };
    fenced.modify(&key, label).await.unwrap();
    let exists = fenced.create(&pod("a")).await;
    assert!(matches!(exists, Err(ClientError::AlreadyExists { .. })));
    set("2").await;
    let is_fenced = |error| matches!(error, ClientError::Fenced { .. });
    assert!(is_fenced(fenced.create(&pod("b")).await.unwrap_err()));
    assert!(is_fenced(fenced.modify(&key, label).await.unwrap_err()));
    assert!(is_fenced(
        fenced.delete::<Pod>(&key, &any).await.unwrap_err()
    ));
    let other = Guard::at(made.revision());
    let conflict = fenced.update(pod("a"), &other).await.unwrap_err();
    assert!(matches!(conflict, ClientError::Conflict { .. }));
    set("1").await;
    fenced.delete::<Pod>(&key, &any).await.unwrap();
}

#[tokio::test]
async fn a_malformed_object_is_removed_from_the_view() {
    let world = World::start().await;
    world.client.create(&pod("a")).await.unwrap();
    let (mut view, mut changes) = world.reflect(Kinds::All).await;
    let garbage = Txn::new().and_then([TxnOp::put("/registry/pods/shop/a", "no json", None)]);
    world.client.txn(garbage).await.unwrap();
    let batch = timeout(TIMEOUT, changes.recv()).await.unwrap().unwrap();
    assert_eq!(batch[0].1, Change::Pod(Key::new("shop", "a"), None));
    view.apply(&batch[0].1);
    assert!(view.pods.is_empty());
}

#[tokio::test]
async fn a_view_without_apps_is_complete_and_gets_no_change_of_an_app() {
    let world = World::start().await;
    world.claims().create(app("web")).await.unwrap();
    let kinds = Kinds::PodsAndNodes;
    let (mut view, mut changes) = world.reflect(kinds).await;
    assert!(view.apps.is_empty());
    world.claims().create(app("api")).await.unwrap();
    let mut node = Node::default();
    node.metadata.name = Some("n1".to_owned());
    world.client.create(&node).await.unwrap();
    world.client.create(&pod("a")).await.unwrap();
    until(&mut view, &mut changes, |view| view.pods.len() == 1).await;
    assert!(view.nodes.contains(&Key::cluster_scoped("n1")));
    assert!(view.apps.is_empty());
}

#[tokio::test]
async fn one_reflector_has_a_second_receiver_without_apps() {
    let world = World::start().await;
    let client = world.client.clone();
    let (mut all, mut second) = reflector::start_shared(client, CancellationToken::new());
    let (mut whole, mut view) = (View::default(), View::default());
    let listed = |view: &View| view.listed;
    tokio::join!(
        until(&mut whole, &mut all, listed),
        until(&mut view, &mut second, listed),
    );
    world.claims().create(app("web")).await.unwrap();
    world.client.create(&pod("a")).await.unwrap();
    until(&mut whole, &mut all, |view| !view.pods.is_empty()).await;
    until(&mut view, &mut second, |view| !view.pods.is_empty()).await;
    assert_eq!((whole.apps.len(), view.apps.len()), (1, 0));
    drop(second);
    world.client.create(&pod("b")).await.unwrap();
    while timeout(TIMEOUT, all.recv()).await.unwrap().is_some() {}
}

#[tokio::test]
async fn after_a_compaction_a_new_list_follows_with_the_deletions_of_pods() {
    let mut world = World::start().await;
    world.claims().create(app("web")).await.unwrap();
    let old = world.claims().create(app("old")).await.unwrap();
    world.client.create(&pod("a")).await.unwrap();
    let (mut view, mut changes) = world.reflect(Kinds::All).await;
    let listener = world.stop().await;
    let client = world.another_client().await;
    let (pod, any) = (Key::new("shop", "a"), Guard::default());
    client.delete::<Pod>(&pod, &any).await.unwrap();
    let deleted = client.delete::<App>(&old.key(), &any).await.unwrap();
    let oldest = i64::try_from(deleted).unwrap();
    world.store.compact(oldest, true).await.unwrap();
    world.serve(listener);
    until(&mut view, &mut changes, |view| view.pods.is_empty()).await;
    until(&mut view, &mut changes, |view| view.listed).await;
    let apps: Vec<_> = view.apps.keys().collect();
    assert_eq!(apps, [&Key::new("shop", "web")]);
}

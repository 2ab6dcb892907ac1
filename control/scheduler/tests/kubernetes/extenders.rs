//! Extenders over HTTP: a service in the test records what it is asked, and replies as the test says.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use dormouse_scheduler::{Configuration, Extender};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::cluster::{PODS, World, pod};
use crate::server::Api;

/// The replies, by the verb and the message; `None` for none at all.
type Replies = dyn Fn(&str, &Value) -> Option<(StatusCode, String)> + Send + Sync;

/// An extender.
#[derive(Clone)]
struct Service {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    replies: Arc<Replies>,
    url: String,
}

impl Service {
    async fn start(
        replies: impl Fn(&str, &Value) -> Option<(StatusCode, String)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let service = Self {
            asked: Arc::default(),
            replies: Arc::new(replies),
            url: format!("http://{}/x", listener.local_addr().unwrap()),
        };
        let router = Router::new().fallback(answer).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        service
    }

    /// The messages to a verb.
    fn asked(&self, verb: &str) -> Vec<Value> {
        let asked = self.asked.lock();
        let of = asked.iter().filter(|(other, _)| other == verb);
        of.map(|(_, message)| message.clone()).collect()
    }

    /// The configuration of this extender, with more fields.
    fn configured(&self, more: &Value) -> Vec<Extender> {
        let mut extender = json!({"urlPrefix": self.url, "nodeCacheCapable": true});
        for (field, value) in more.as_object().unwrap() {
            extender[field] = value.clone();
        }
        let document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
        Configuration::parse(&document).unwrap().extenders
    }

    async fn world(&self, more: &Value) -> World {
        World::with(None, self.configured(more)).await
    }
}

async fn answer(State(service): State<Service>, uri: Uri, body: Bytes) -> Response {
    let verb = uri.path().strip_prefix("/x/").unwrap().to_owned();
    let message = serde_json::from_slice(&body).unwrap();
    let reply = (service.replies)(&verb, &message);
    service.asked.lock().push((verb, message));
    match reply {
        Some(reply) => reply.into_response(),
        None => std::future::pending().await,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "without an answer a service stays silent"
)]
fn ok(reply: &Value) -> Option<(StatusCode, String)> {
    Some((StatusCode::OK, reply.to_string()))
}

/// Returns once the condition of a pod has this part in its message.
async fn unschedulable(world: &World, name: &str, part: &str) {
    let has = |api: &Api| {
        let pod = api.get(PODS, &format!("default/{name}"));
        let condition = pod.map(|pod| pod["status"]["conditions"][0].to_string());
        condition.is_some_and(|condition| condition.contains(part))
    };
    world.api.until(part, has).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_asked_by_name_and_takes_nodes_away() {
    let service = Service::start(|_, _| ok(&json!({"NodeNames": ["n2"]}))).await;
    let world = service.world(&json!({"filterVerb": "filter"})).await;
    for (name, pods) in [("n1", 9), ("n2", 9), ("full", 0)] {
        world.node(name, pods);
    }
    world.seen(3).await;
    world.api.put(PODS, &pod("a", &json!({})));
    assert_eq!(world.bound("a").await, "n2");
    let asked = service.asked("filter").remove(0);
    assert_eq!(asked["Pod"]["metadata"]["name"], "a");
    assert_eq!(asked["Nodes"], Value::Null);
    let mut names: Vec<String> = serde_json::from_value(asked["NodeNames"].clone()).unwrap();
    names.sort();
    assert_eq!(names, ["n1", "n2"], "those that pass the plugins");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_without_a_cache_is_sent_the_objects() {
    let service = Service::start(|_, message| {
        let mut items = message["Nodes"]["items"].as_array().unwrap().clone();
        items.retain(|node| node["status"]["allocatable"]["pods"] == "7");
        ok(&json!({"nodes": {"items": items}}))
    });
    let more = json!({"filterVerb": "filter", "nodeCacheCapable": false});
    let world = service.await.world(&more).await;
    world.node("n1", 9);
    world.node("n2", 7);
    world.seen(2).await;
    world.api.put(PODS, &pod("a", &json!({})));
    assert_eq!(world.bound("a").await, "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_of_an_extender_change_the_best_node() {
    let scores = json!([{"Host": "busy", "Score": 10}, {"Host": "free", "Score": 0}]);
    let service = Service::start(move |_, _| ok(&scores)).await;
    let more = json!({"prioritizeVerb": "prioritize", "weight": 5});
    let world = service.world(&more).await;
    world.node("busy", 9);
    world.node("free", 9);
    world.seen(2).await;
    let large = json!([{"name": "c", "resources": {"requests": {"cpu": "3"}}}]);
    let taken = pod("taken", &json!({"nodeName": "busy", "containers": large}));
    world.api.put(PODS, &taken);
    world.api.put(PODS, &pod("a", &json!({})));
    assert_eq!(world.bound("a").await, "busy");
    assert_eq!(service.asked("prioritize").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_an_extender_rejects_on_all_nodes_has_its_reasons_and_is_tried_again() {
    let is_free = Arc::new(Mutex::new(false));
    let changed = Arc::clone(&is_free);
    let service = Service::start(move |_, _| {
        let (free, failed) = if *is_free.lock() {
            (json!(["n1"]), json!({}))
        } else {
            (json!([]), json!({"n1": "no gpu is free"}))
        };
        ok(&json!({"NodeNames": free, "FailedNodes": failed}))
    });
    let world = service.await.world(&json!({"filterVerb": "filter"})).await;
    world.node("n1", 9);
    world.seen(1).await;
    world.api.put(PODS, &pod("a", &json!({})));
    unschedulable(&world, "a", "0/1 nodes are available: 1 no gpu is free.").await;
    *changed.lock() = true;
    assert_eq!(world.bound("a").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_that_fails_stops_the_pod_with_its_error_unless_it_can_be_ignored() {
    let failures: [(&str, Box<Replies>); 4] = [
        (
            "500",
            Box::new(|_, _| Some((StatusCode::INTERNAL_SERVER_ERROR, String::new()))),
        ),
        ("no reply within 50ms", Box::new(|_, _| None)),
        (
            "the reply cannot be read",
            Box::new(|_, _| Some((StatusCode::OK, "{".to_owned()))),
        ),
        (
            "out of order",
            Box::new(|_, _| ok(&json!({"Error": "out of order"}))),
        ),
    ];
    for (reason, replies) in failures {
        let service = Service::start(replies).await;
        let more = json!({"filterVerb": "filter", "httpTimeout": "50ms"});
        let world = service.world(&more).await;
        world.node("n1", 9);
        world.seen(1).await;
        world.api.put(PODS, &pod("a", &json!({})));
        unschedulable(&world, "a", reason).await;
        let more = json!({"filterVerb": "filter", "httpTimeout": "50ms", "ignorable": true});
        let world = service.world(&more).await;
        world.node("n1", 9);
        world.api.put(PODS, &pod("a", &json!({})));
        assert_eq!(world.bound("a").await, "n1", "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_with_a_bind_verb_binds_in_place_of_the_scheduler() {
    let service = Service::start(|_, _| ok(&json!({"Error": ""}))).await;
    let world = service.world(&json!({"bindVerb": "bind"})).await;
    world.node("n1", 9);
    world.seen(1).await;
    world.api.put(PODS, &pod("a", &json!({})));
    let scheduled = |event: &Value| event["reason"] == "Scheduled";
    let events = "/apis/events.k8s.io/v1/events";
    let is_recorded = |api: &Api| api.list(events).iter().any(scheduled);
    world.api.until("the event", is_recorded).await;
    let expected =
        json!({"PodName": "a", "PodNamespace": "default", "PodUID": "uid-a", "Node": "n1"});
    assert_eq!(service.asked("bind"), [expected]);
    assert!(world.api.writes("/binding").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_is_asked_only_about_pods_with_its_resources_which_the_plugins_may_ignore() {
    let service = Service::start(|_, _| ok(&json!({"NodeNames": ["n1"]}))).await;
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}]);
    let more = json!({"filterVerb": "filter", "managedResources": managed});
    let document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": service.url, "nodeCacheCapable": true, "filterVerb": "filter", "managedResources": managed}]});
    let profiles = Configuration::parse(&document).unwrap().profiles;
    let world = World::of(None, profiles, service.configured(&more)).await;
    world.node("n1", 9);
    world.seen(1).await;
    world.api.put(PODS, &pod("plain", &json!({})));
    world.bound("plain").await;
    assert!(service.asked("filter").is_empty());
    let gpu = json!([{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}]);
    world
        .api
        .put(PODS, &pod("gpu", &json!({"containers": gpu})));
    assert_eq!(world.bound("gpu").await, "n1");
    assert_eq!(service.asked("filter").len(), 1);
}

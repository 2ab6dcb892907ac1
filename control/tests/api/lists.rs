//! Lists in pages and at versions, and the bookmarks of watches, as a follower of a kube-apiserver uses them.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::client::send;
use crate::world::World;

const SERVICES: &str = "/api/v1/services";

/// The response of a GET: its status, and its body, which is JSON. The `kube` crate would repeat a request that is answered 504.
async fn get(world: &World, target: &str) -> (u16, Value) {
    let (code, body) = send(world, ("", ""), ("GET", target), &Value::Null).await;
    assert!(!body.is_null(), "{target}: {code} without JSON");
    (code, body)
}

async fn create(world: &World, name: &str, labels: Value) {
    let services: Api<Service> = Api::namespaced(world.kube(), "default");
    let value =
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"ports": [{"port": 80}]}});
    let service = serde_json::from_value(value).unwrap();
    services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

fn token(list: &Value) -> String {
    list["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn the_pages_of_a_list_show_one_version() {
    let world = World::start().await;
    for number in 0..5 {
        let labels = if number == 1 {
            json!({"service.kubernetes.io/headless": ""})
        } else {
            json!({})
        };
        create(&world, &format!("s{number}"), labels).await;
    }
    let (_, first) = get(&world, &format!("{SERVICES}?limit=2")).await;
    assert_eq!(names(&first), ["s0", "s1"]);
    create(&world, "s11", json!({})).await;
    let path = |list: &Value| format!("{SERVICES}?limit=2&continue={}", token(list));
    let (_, second) = get(&world, &path(&first)).await;
    let (_, third) = get(&world, &path(&second)).await;
    assert_eq!(
        (names(&second), names(&third), token(&third)),
        (
            vec!["s2".into(), "s3".into()],
            vec!["s4".into()],
            String::new()
        )
    );
    let version = |list: &Value| list["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&first), version(&third));

    let proxied = "labelSelector=%21service.kubernetes.io%2Fheadless";
    let (_, selected) = get(&world, &format!("{SERVICES}?{proxied}&limit=2")).await;
    assert_eq!(names(&selected), ["s0", "s11"]);
    let (_, all) = get(&world, &format!("{SERVICES}?resourceVersion=0&limit=2")).await;
    assert_eq!(names(&all).len(), 6);
    let (_, rest) = get(&world, &format!("{SERVICES}?continue={}", token(&first))).await;
    assert_eq!(names(&rest), ["s2", "s3", "s4"]);
}

#[tokio::test]
async fn versions_that_the_store_has_not_are_refused() {
    let world = World::start().await;
    create(&world, "a", json!({})).await;
    let (_, first) = get(&world, &format!("{SERVICES}?limit=1")).await;
    let version: i64 = first["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let exact = format!("{SERVICES}?resourceVersion={version}&resourceVersionMatch=Exact");
    create(&world, "b", json!({})).await;
    assert_eq!(names(&get(&world, &exact).await.1), ["a"]);
    let (_, page) = get(&world, &format!("{SERVICES}?limit=1")).await;
    let (code, status) = get(
        &world,
        &format!("{SERVICES}?resourceVersion=1000000&resourceVersionMatch=NotOlderThan&limit=1"),
    )
    .await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    create(&world, "c", json!({})).await;
    world.history.compact(version + 2, true).await.unwrap();
    for gone in [
        exact,
        format!("{SERVICES}?limit=1&continue={}", token(&page)),
    ] {
        let (code, status) = get(&world, &gone).await;
        assert_eq!(
            (code, &status["reason"]),
            (410, &json!("Expired")),
            "{gone}"
        );
    }
    for (wrong, want) in [
        ("resourceVersion=abc", 400),
        ("continue=abc", 400),
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("watch=true&sendInitialEvents=true", 422),
        (
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            422,
        ),
    ] {
        assert_eq!(
            get(&world, &format!("{SERVICES}?{wrong}")).await.0,
            want,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_watch_has_bookmarks_of_versions_in_which_nothing_of_its_kind_changed() {
    let world = World::start().await;
    create(&world, "a", json!({})).await;
    let services: Api<Service> = Api::all(world.kube());
    let version = services
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata;
    let version = version.resource_version.unwrap();
    let events: Api<Event> = Api::namespaced(world.kube(), "default");
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {}, "reason": "X"});
    let event = serde_json::from_value(event).unwrap();
    let event = events.create(&PostParams::default(), &event).await.unwrap();
    let collect = async |params: &WatchParams| -> Vec<WatchEvent<Service>> {
        let watch = services.watch(params, &version).await.unwrap();
        watch.try_collect().await.unwrap()
    };
    let short = WatchParams::default().timeout(2);
    let received = collect(&short).await;
    let [WatchEvent::Bookmark(bookmark)] = &received[..] else {
        panic!("{received:?}");
    };
    assert_eq!(
        Some(&bookmark.metadata.resource_version),
        event.metadata.resource_version.as_ref()
    );
    let silent = WatchParams {
        bookmarks: false,
        ..short
    };
    assert_eq!(collect(&silent).await.len(), 0);
}

#[tokio::test]
async fn a_list_as_the_start_of_a_watch_ends_with_its_bookmark() {
    let world = World::start().await;
    create(&world, "a", json!({})).await;
    let services: Api<Service> = Api::all(world.kube());
    let params = WatchParams::default().initial_events().timeout(1);
    let events: Vec<_> = services
        .watch(&params, "")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let [WatchEvent::Added(_), WatchEvent::Bookmark(end)] = &events[..] else {
        panic!("{events:?}");
    };
    let marks = &end.metadata.annotations;
    assert_eq!(
        marks.get("k8s.io/initial-events-end").map(String::as_str),
        Some("true")
    );
}

#[tokio::test]
async fn a_list_as_the_start_of_a_watch_has_all_objects_also_if_it_comes_in_parts() {
    const COUNT: usize = 2_100;
    let world = World::start().await;
    for number in 0..COUNT {
        let event = json!({
            "metadata": {"name": format!("e{number}"), "namespace": "default"},
            "involvedObject": {}, "reason": "X",
        });
        let event: Event = serde_json::from_value(event).unwrap();
        world.store.create(&event).await.unwrap();
    }
    let events: Api<Event> = Api::all(world.kube());
    let params = WatchParams::default().initial_events().timeout(2);
    let watched = events.watch(&params, "").await.unwrap();
    let received: Vec<_> = watched.try_collect().await.unwrap();
    let (added, rest) = received.split_at(COUNT);
    let names: BTreeSet<_> = added
        .iter()
        .map(|event| match event {
            WatchEvent::Added(event) => event.metadata.name.clone().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names.len(), COUNT);
    assert!(matches!(rest, [WatchEvent::Bookmark(_)]), "{rest:?}");
}

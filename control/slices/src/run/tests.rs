//! Slices in a real store.

use std::time::Duration;

use dormouse_store::{Store, server};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

/// Longer than any operation of these tests takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);

/// The slices of all Services, once they are as `is_wanted` wants them.
async fn slices(
    client: &Client,
    is_wanted: impl Fn(&[EndpointSlice]) -> bool,
) -> Vec<EndpointSlice> {
    let range = KeyRange::of_prefix(EndpointSlice::PREFIX);
    let wait = async {
        let mut list = client.list::<EndpointSlice>(None).await.unwrap();
        let watch = client
            .watch(&range, list.revision, Previous::LeftOut)
            .await
            .unwrap();
        let mut watch = pin!(watch);
        while !is_wanted(&list.items) {
            watch.next().await.unwrap().unwrap();
            list = client.list::<EndpointSlice>(None).await.unwrap();
        }
        list.items
    };
    timeout(DEADLINE, wait).await.unwrap()
}

fn made<K: Object>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str) -> Pod {
    made(
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {"podIP": "fd00:1::1", "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
}

fn count(slices: &[EndpointSlice]) -> usize {
    slices
        .iter()
        .map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len))
        .sum()
}

#[tokio::test]
async fn slices_follow_services_and_pods_also_over_a_restart() {
    let shutdown = CancellationToken::new();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server::serve(listener, Store::default(), shutdown.clone()));
    let client = Client::connect(&format!("http://{address}")).await.unwrap();
    client.create(&pod("a")).await.unwrap();
    let first = shutdown.child_token();
    let running = tokio::spawn(run(client.clone(), first.clone()));
    let service: Service = made(
        json!({"metadata": {"name": "web", "namespace": "shop", "uid": "s"}, "spec": {
        "clusterIP": "fd00:96::1", "ipFamilies": ["IPv6"], "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    );
    client.create(&service).await.unwrap();
    let one = slices(&client, |slices| count(slices) == 1).await;
    assert_eq!(one[0].metadata.generate_name.as_deref(), Some("web-"));
    client.create(&pod("b")).await.unwrap();
    slices(&client, |slices| count(slices) == 2).await;
    // A user's write of a slice is taken back.
    let key = one[0].key();
    let emptied = client.modify::<EndpointSlice>(&key, |slice| slice.endpoints.take().is_some());
    emptied.await.unwrap();
    slices(&client, |slices| count(slices) == 2).await;
    first.cancel();
    running.await.unwrap();
    client
        .delete::<Pod>(&Key::new("shop", "a"), &Guard::default())
        .await
        .unwrap();
    let running = tokio::spawn(run(client.clone(), shutdown.child_token()));
    let left = slices(&client, |slices| count(slices) == 1).await;
    assert_eq!(
        (left.len(), &left[0].metadata.name),
        (1, &one[0].metadata.name)
    );
    client
        .delete::<Service>(&service.key(), &Guard::default())
        .await
        .unwrap();
    slices(&client, <[_]>::is_empty).await;
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn no_batch_is_lost_however_many_are_there() {
    let all: Vec<usize> = (0..=3 * BATCHES_MAX).collect();
    let mut watch = stream::iter(all.clone().into_iter().map(Ok::<_, ClientError>));
    let mut taken = Vec::new();
    while let Some(batches) = batches(&mut watch).await.unwrap() {
        assert!(batches.len() <= BATCHES_MAX);
        taken.extend(batches);
    }
    assert_eq!(taken, all);
}

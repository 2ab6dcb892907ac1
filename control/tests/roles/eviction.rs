//! An eviction: the pod is replaced and removed, and no request fails.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::world::{World, get, in_namespace, request, served, until};

const API: &str = "[::1]:6443";

async fn evict(pod: &str) -> String {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "default"}})
    .to_string();
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    let length = body.len();
    let post = format!(
        "POST {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    request(API, &post).await.unwrap()
}

/// The names of all pods, and of those that are to stay.
async fn pods(world: &World) -> (BTreeSet<String>, BTreeSet<String>) {
    let pods = world.store().await.list::<Pod>(Some("default")).await;
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    let pods = pods.unwrap().items;
    let staying = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    (pods.iter().map(name).collect(), staying.map(name).collect())
}

#[test]
fn an_evicted_pod_is_replaced_and_removed() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let _activator = world.activator().await;
        let scale = json!({"min": 1, "targetBurstCapacity": -1});
        world.create_app_with(1, &json!({"scale": scale})).await;
        served(1).await;
        let (all, staying) = pods(&world).await;
        assert_eq!((all.len(), &all), (1, &staying));
        let evicted = all.first().unwrap();
        world.starting.set(true);
        let reply = evict(evicted).await;
        assert!(reply.contains("201 Created"), "{reply}");
        until("a successor starts", async || {
            pods(&world).await.1.iter().any(|pod| pod != evicted)
        })
        .await;
        // Until the successor is ready, requests are parked.
        let ready = async { world.starting.set(false) };
        let (reply, ()) = tokio::join!(get(1), ready);
        assert!(reply.ends_with("ok"), "{reply}");
        until("the pod is removed", async || {
            !pods(&world).await.0.contains(evicted)
        })
        .await;
        assert_eq!(pods(&world).await.1.len(), 1);
        assert!(get(1).await.ends_with("ok"));
    });
}

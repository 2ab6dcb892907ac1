//! The bindings of all pods, by a watch of the store from before the first one.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use dormouse_cluster::client::{KeyRange, Previous};
use dormouse_cluster::{Client, Object};
use dormouse_store_checker::wait::until;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;

/// The nodes that each pod was seen on, in their order.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Ledger {
    pub(crate) async fn open(client: &Client) -> Self {
        let ledger = Self::default();
        let from = client.list::<Pod>(None).await.unwrap().revision;
        let range = KeyRange::of_prefix(Pod::PREFIX);
        let watch = client.watch(&range, from, Previous::LeftOut).await.unwrap();
        let seen = ledger.clone();
        tokio::spawn(async move {
            let mut watch = pin!(watch);
            while let Some(events) = watch.next().await {
                for event in events.unwrap() {
                    let pod = event.value.expect("no pod is deleted");
                    seen.record(&serde_json::from_slice(&pod).unwrap());
                }
            }
        });
        ledger
    }

    fn record(&self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let mut all = self.0.lock().unwrap();
        let nodes = all.entry(name).or_default();
        let node = node.unwrap_or_default();
        if nodes.last() != Some(&node) {
            nodes.push(node);
        }
    }

    /// Waits until so many pods are bound.
    pub(crate) async fn bound(&self, count: usize) {
        until(&format!("{count} pods are bound"), async || {
            self.nodes().len() >= count
        })
        .await;
    }

    /// The node of each pod that is bound; an error text for one that has changed its node.
    pub(crate) fn nodes(&self) -> BTreeMap<String, String> {
        let all = self.0.lock().unwrap();
        let mut bound = BTreeMap::new();
        for (pod, nodes) in all.iter() {
            match nodes.as_slice() {
                [first] if first.is_empty() => {}
                [first, node] if first.is_empty() => _ = bound.insert(pod.clone(), node.clone()),
                other => panic!("{pod} was bound more than once: {other:?}"),
            }
        }
        bound
    }
}

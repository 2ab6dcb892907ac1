//! What reaches which shard, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_cluster::{Key, StoredApp};
use dormouse_fleet::proto::{Count, NodeStatus, PodStatus, Stages};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;

const SHARDS: usize = 3;
const VIPS: std::ops::Range<u32> = 1..10;

fn listed() -> Dispatch {
    let ranges = vec!["fd00:10::/108".parse().unwrap()];
    let mut dispatch = Dispatch::new(Shards::new(SHARDS), ranges);
    let node = Changed::Node(Key::cluster_scoped("n1"), Some(Arc::default()));
    let all = [Changed::Listing, node, Changed::Listed].map(|change| (1, change));
    dispatch.apply(Input::Changes(all.into()));
    dispatch
}

/// A pod of the app with a VIP, on node n1.
fn pod(vip: u32) -> Changed {
    pod_on("n1", vip)
}

fn pod_on(node: &str, vip: u32) -> Changed {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": format!("app-{vip}-x"), "namespace": "default",
            "labels": {"dormouse.dev/app": format!("app-{vip}")},
            "annotations": {"dormouse.dev/vip-index": vip.to_string()},
        },
        "spec": {"nodeName": node, "containers": []},
    }))
    .unwrap();
    Changed::Pod(
        Key::new("default", format!("app-{vip}-x")),
        Some(Arc::new(pod)),
    )
}

fn pods() -> Input {
    Input::Changes(VIPS.map(|vip| (2, pod(vip))).collect())
}

/// A node's report that the pod of VIP 1 runs.
fn report(node: &str) -> Input {
    let status = PodStatus {
        namespace: "default".into(),
        name: "app-1-x".into(),
        address: "2001:db8::bad".into(),
        stages: Some(Stages::default()),
        ..PodStatus::default()
    };
    let node = node.to_owned();
    Input::Fleet(FleetEvent::Pod { node, status })
}

fn node_down() -> Input {
    Input::Fleet(FleetEvent::NodeDown { node: "n1".into() })
}

#[test]
fn a_node_that_connects_gets_the_pods_of_all_shards() {
    let mut dispatch = listed();
    let changes = dispatch.apply(pods());
    let shards: BTreeSet<usize> = changes.events.iter().map(|(shard, _)| *shard).collect();
    assert_eq!(shards.len(), SHARDS);
    let connected = dispatch.apply(Input::Fleet(FleetEvent::NodeUp {
        node: "n1".into(),
        status: NodeStatus::default(),
        boot_id: String::new(),
    }));
    let Some(Action::SyncPods { specs, .. }) = connected.actions.last() else {
        panic!("{:?}", connected.actions);
    };
    assert_eq!(specs.len(), VIPS.len());
}

#[test]
fn a_lost_node_reaches_the_shards_of_its_pods_and_later_changes_on_it_are_marked() {
    let mut dispatch = listed();
    dispatch.apply(pods());
    let mut lost = BTreeMap::new();
    for (shard, event) in dispatch.apply(node_down()).events {
        let ShardEvent::PodsLost(pods) = event else {
            panic!("{event:?}");
        };
        lost.extend(pods.into_iter().map(|(vip, _)| (vip, shard)));
    }
    let expected = VIPS.map(|vip| (vip, dispatch.shards.of(vip))).collect();
    assert_eq!(lost, expected);
    let late = dispatch.apply(Input::Changes(vec![(3, pod(20))]));
    let [(_, ShardEvent::Changes(changes))] = &late.events[..] else {
        panic!("{:?}", late.events);
    };
    assert!(matches!(&changes[..], [(3, Change::Pod(pod))] if pod.on_lost_node));
}

#[test]
fn a_report_about_the_pod_of_another_node_is_ignored() {
    let mut dispatch = listed();
    dispatch.apply(pods());
    let lie = dispatch.apply(report("n2"));
    assert!(lie.events.is_empty() && lie.actions.is_empty(), "{lie:?}");
    let truth = dispatch.apply(report("n1"));
    assert_eq!((truth.events.len(), truth.actions.len()), (1, 1));
    // While that is written, n1 reports again, and another pod with the name comes to n2.
    assert!(dispatch.apply(report("n1")).actions.is_empty());
    let key = Key::new("default", "app-1-x");
    let replaced = vec![(3, Changed::Pod(key.clone(), None)), (4, pod_on("n2", 1))];
    dispatch.apply(Input::Changes(replaced));
    let written = dispatch.apply(Input::StatusWritten { pod: key });
    assert!(written.actions.is_empty(), "{written:?}");
}

#[test]
fn a_list_ends_in_all_shards_and_a_deletion_reaches_all() {
    let mut dispatch = listed();
    let key = Key::new("default", "app");
    let batch = [
        Changed::Listing,
        Changed::App(key.clone(), None),
        Changed::Listed,
    ];
    let events = dispatch
        .apply(Input::Changes(batch.map(|change| (5, change)).into()))
        .events;
    let all = vec![
        (5, Change::Listing),
        (5, Change::Deleted(key)),
        (5, Change::Listed),
    ];
    let expected: Vec<_> = (0..SHARDS)
        .map(|shard| (shard, ShardEvent::Changes(all.clone())))
        .collect();
    assert_eq!(events, expected);
}

#[test]
fn counts_are_split_and_none_is_lost() {
    let mut dispatch = listed();
    let counts = VIPS
        .map(|vip| Count {
            vip,
            ..Count::default()
        })
        .collect();
    let event = FleetEvent::Counts {
        node: "n1".into(),
        counts,
    };
    let mut seen = BTreeSet::new();
    for (shard, event) in dispatch.apply(Input::Fleet(event)).events {
        let ShardEvent::Counts(counts) = event else {
            panic!("{event:?}");
        };
        assert!(
            counts
                .iter()
                .all(|count| dispatch.shards.of(count.vip) == shard)
        );
        seen.extend(counts.into_iter().map(|count| count.vip));
    }
    assert!(seen.into_iter().eq(VIPS));
}

#[test]
fn apps_that_divide_their_traffic_are_planned_when_the_first_list_has_shown_all_children() {
    let app = |name: &str, parent: Option<&str>| {
        let mut app = json!({"metadata": {"name": name}, "spec": {"vip": "fd00:10::1", "rollout": {"duration": "1s"}}});
        if let Some(parent) = parent {
            app["metadata"]["labels"] = json!({"dormouse.dev/parent": parent});
        }
        let app = StoredApp::decode(serde_json::to_vec(&app).unwrap(), 1).unwrap();
        Changed::App(Key::new("shop", name), Some(Box::new(app)))
    };
    let ranges = vec!["fd00:10::/108".parse().unwrap()];
    let mut dispatch = Dispatch::new(Shards::new(SHARDS), ranges);
    let mut families = |changes: Vec<Changed>| {
        let changes = changes.into_iter().map(|change| (1, change)).collect();
        let families = dispatch.apply(Input::Changes(changes)).families;
        families
            .into_iter()
            .map(|touch| touch.child)
            .collect::<Vec<_>>()
    };
    assert_eq!(families(vec![Changed::Listing, app("web", None)]), []);
    let rest = vec![app("web-2", Some("web")), Changed::Listed];
    assert_eq!(families(rest), [None, Some((2, true))]);
    assert_eq!(families(vec![app("web", None)]), [None]);
}

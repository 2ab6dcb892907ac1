//! Snapshots: what changes at once, what at a refresh, and pods whose node is not known.

use serde_json::{Value, json};

use super::*;

fn node(name: &str, image_size: i64) -> Node {
    let images = if image_size > 0 {
        json!([{"names": ["i:1"], "sizeBytes": image_size}])
    } else {
        json!([])
    };
    parse(json!({"metadata": {"name": name}, "status": {"images": images}}))
}

fn parse(node: Value) -> Node {
    Node::parse(&serde_json::from_value(node).unwrap()).unwrap()
}

fn pod(name: &str, node: &str, nominated: &str) -> Pod {
    let pod = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"nominatedNodeName": nominated}});
    Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()
}

fn image(snapshot: &Snapshot, node: &str) -> (i64, usize) {
    let image = snapshot.node(node).unwrap().images["i:1"];
    (image.size, image.nodes_len)
}

#[test]
fn a_node_learns_of_images_elsewhere_when_it_changes_itself() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("a", 10));
    snapshot.refresh();
    snapshot.set_node(node("b", 20));
    snapshot.refresh();
    assert_eq!(image(&snapshot, "a"), (10, 1));
    assert_eq!(image(&snapshot, "b"), (10, 2));
    snapshot.set_pod(pod("p", "a", ""));
    snapshot.refresh();
    assert_eq!(image(&snapshot, "a"), (10, 2));
}

#[test]
fn an_image_that_was_on_no_node_has_a_new_size() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("a", 10));
    snapshot.set_node(node("a", 0));
    snapshot.set_node(node("b", 20));
    snapshot.refresh();
    assert_eq!(image(&snapshot, "b"), (20, 1));
}

#[test]
fn the_order_changes_only_when_a_node_comes_or_goes() {
    let zoned = |name: &str, zone: &str| {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        parse(json!({"metadata": {"name": name, "labels": labels}}))
    };
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2")] {
        snapshot.set_node(zoned(name, zone));
    }
    snapshot.refresh();
    assert_eq!(snapshot.node_order(), ["a", "c", "b"]);
    snapshot.set_node(zoned("a", "2"));
    snapshot.refresh();
    assert_eq!(snapshot.node_order(), ["a", "c", "b"]);
    snapshot.set_node(zoned("d", "1"));
    snapshot.refresh();
    assert_eq!(snapshot.node_order(), ["b", "c", "d", "a"]);
    snapshot.remove_node("c");
    snapshot.refresh();
    assert_eq!(snapshot.node_order(), ["b", "a", "d"]);
}

#[test]
fn pods_wait_for_their_node() {
    let mut snapshot = Snapshot::default();
    snapshot.set_pod(pod("p", "a", ""));
    snapshot.set_node(node("a", 0));
    let requested = |snapshot: &Snapshot| snapshot.node("a").unwrap().requested.cpu_milli;
    assert_eq!(requested(&snapshot), 1_000);
    snapshot.remove_node("a");
    snapshot.set_node(node("a", 0));
    assert_eq!(requested(&snapshot), 1_000);
    snapshot.remove_pod(pod("p", "", "").key());
    assert_eq!(requested(&snapshot), 0);
}

#[test]
fn a_nomination_ends_when_the_pod_is_bound_or_removed() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("a", 0));
    snapshot.set_pod(pod("p", "", "a"));
    assert_eq!(snapshot.nominated("a").len(), 1);
    snapshot.set_pod(pod("p", "a", ""));
    assert_eq!(snapshot.nominated("a").len(), 0);
    snapshot.set_pod(pod("q", "", "a"));
    snapshot.remove_nomination(pod("q", "", "").key());
    assert_eq!(snapshot.nominated("a").len(), 0);
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let mut snapshot = Snapshot::default();
    let set = |size: i64, app: &str| {
        let set = json!({"metadata": {"name": "r", "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"replicas": size}});
        serde_json::from_value(set).unwrap()
    };
    snapshot.set_replica_set(&set(1, "a"));
    let before = snapshot.objects_revision();
    snapshot.set_replica_set(&set(2, "a"));
    snapshot.remove_replica_set("d", "other");
    snapshot.remove_service("d", "r");
    assert_eq!(snapshot.objects_revision(), before);
    snapshot.set_replica_set(&set(2, "b"));
    assert_eq!(snapshot.objects_revision(), before + 1);
    snapshot.remove_replica_set("d", "r");
    assert_eq!(snapshot.objects_revision(), before + 2);
}

#[test]
fn a_volume_changes_objects_if_it_changes_and_never_selectors() {
    let mut snapshot = Snapshot::default();
    let claim = |size: &str| {
        let spec = json!({"resources": {"requests": {"storage": size}}});
        let claim = json!({"metadata": {"name": "c", "namespace": "d", "annotations": {"seen": size}}, "spec": spec});
        serde_json::from_value(claim).unwrap()
    };
    let attachment = |node: &str| {
        let spec =
            json!({"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": "v"}});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
    };
    let mut revisions = Vec::new();
    for (size, node) in [("1Gi", "n"), ("1024Mi", "n"), ("2Gi", "n"), ("2Gi", "m")] {
        snapshot.set_claim(&claim(size)).unwrap();
        snapshot.set_attachment(&attachment(node));
        revisions.push(snapshot.objects_revision());
    }
    snapshot.remove_claim("d", "other");
    snapshot.remove_volume("v");
    revisions.push(snapshot.objects_revision());
    // An attachment that moves leaves the node it was on.
    assert_eq!(revisions, [2, 2, 3, 5, 5]);
    assert_eq!(snapshot.selectors_revision(), 0);
}

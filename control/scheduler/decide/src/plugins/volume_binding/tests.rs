//! Claims that are bound once the node is known: the smallest volumes that fit, and provisioning.

use serde_json::{Value, json};

use super::*;

fn snapshot(
    volumes: &[(&str, &str, &str)],
    claims: &[(&str, &str)],
    provisioner: &str,
) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let parse = |value: Value| serde_json::from_value(value).unwrap();
    snapshot
        .set_storage_class(&parse(
            json!({"metadata": {"name": "late"}, "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer"}),
        ))
        .unwrap();
    for (name, size, zone) in volumes {
        let term =
            json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        let volume = json!({"metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": size}, "storageClassName": "late",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        snapshot
            .set_volume(&serde_json::from_value(volume).unwrap())
            .unwrap();
    }
    for (name, size) in claims {
        let claim = json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": "late", "resources": {"requests": {"storage": size}}}});
        snapshot
            .set_claim(&serde_json::from_value(claim).unwrap())
            .unwrap();
    }
    snapshot
}

fn binds(snapshot: &Snapshot, zone: &str) -> bool {
    let node = json!({"metadata": {"name": "n", "labels": {"zone": zone}}});
    let node = Node::parse(&serde_json::from_value(node).unwrap()).unwrap();
    let claims: Vec<_> = snapshot.volumes.claims.values().cloned().collect();
    delayed_conflict(snapshot, &claims, &node)
        .unwrap()
        .is_none()
}

#[test]
fn each_claim_takes_the_smallest_volume_that_fits() {
    let volumes = [
        ("large", "20Gi", "a"),
        ("small", "5Gi", "a"),
        ("other", "20Gi", "b"),
    ];
    let snapshot = snapshot(&volumes, &[("c0", "10Gi"), ("c1", "4Gi")], NO_PROVISIONER);
    assert!(binds(&snapshot, "a"));
    assert!(!binds(&snapshot, "b"));
}

#[test]
fn what_finds_no_volume_is_provisioned() {
    let snapshot = snapshot(&[], &[("c0", "10Gi")], "csi.example");
    assert!(binds(&snapshot, "a"));
}

#[test]
fn a_driver_that_publishes_its_room_needs_enough_of_it() {
    let mut snapshot = snapshot(&[], &[("c0", "10Gi")], "csi.example");
    let driver = json!({"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": true}});
    snapshot.set_csi_driver(&serde_json::from_value(driver).unwrap());
    assert!(!binds(&snapshot, "a"));
    let capacity = json!({"metadata": {"name": "c", "namespace": "default"}, "storageClassName": "late",
        "capacity": "10Gi", "nodeTopology": {"matchLabels": {"zone": "a"}}});
    let capacity = serde_json::from_value(capacity).unwrap();
    snapshot.set_capacity(&capacity).unwrap();
    assert!(binds(&snapshot, "a") && !binds(&snapshot, "b"));
}

#[test]
fn a_pod_with_an_in_tree_volume_is_refused() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [],
        "volumes": [{"name": "v", "cinder": {"volumeID": "x"}}]}});
    let pod = Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap();
    let (snapshot, profile) = (Snapshot::default(), crate::Profile::default());
    let cycle = Cycle {
        pod: &pod,
        snapshot: &snapshot,
        profile: &profile,
    };
    let status = crate::plugins::node_volume_limits::pre_filter(cycle)
        .err()
        .unwrap();
    assert_eq!(
        status.message(),
        "spec.volumes.cinder is not supported: use the CSI driver"
    );
}

//! The order in which nodes came has no influence on which nodes are feasible and best.
#![expect(
    clippy::unwrap_used,
    reason = "the objects are written here: a malformed one must fail the test"
)]

use std::collections::BTreeSet;

use dormouse_scheduler_decide::{Node, Outcome, Pod, Profile, Scheduler, Snapshot};
use proptest::prelude::*;
use serde_json::json;

const NODES_MAX: usize = 12;

/// A node's CPU, zone, taint, and the pods that are on it.
type Shape = (u8, u8, bool, u8);

fn node(index: usize, (cpu, zone, is_tainted, _): Shape) -> Node {
    let taints = if is_tainted {
        json!([{"key": "a", "effect": "PreferNoSchedule"}])
    } else {
        json!([])
    };
    let name = format!("n{index}");
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", zone % 3)});
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": (cpu % 8).to_string(), "memory": "8Gi", "pods": "5"}}});
    Node::parse(&serde_json::from_value(node).unwrap()).unwrap()
}

fn pod(name: &str, node: &str, affinity: u8) -> Pod {
    let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "a"}}});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]});
    let affinity = match affinity % 3 {
        0 => json!({"podAffinity": preferred}),
        1 => json!({"podAntiAffinity": preferred}),
        _ => json!({}),
    };
    let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}}}]);
    let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}},
        "spec": {"nodeName": node, "affinity": affinity, "topologySpreadConstraints": spread,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}});
    Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()
}

fn decide(shapes: &[Shape], order: &[usize], affinity: u8) -> (Outcome, BTreeSet<String>) {
    let mut snapshot = Snapshot::default();
    for index in order {
        snapshot.set_node(node(*index, shapes[*index]));
        for nth in 0..shapes[*index].3 % 3 {
            let name = format!("p{index}-{nth}");
            snapshot.set_pod(pod(&name, &format!("n{index}"), nth));
        }
    }
    snapshot.refresh();
    let mut scheduler = Scheduler::new(Profile::default());
    let attempt = scheduler.attempt(&snapshot, &pod("new", "", affinity));
    let best = attempt.best().into_iter().map(str::to_owned).collect();
    (attempt.outcome, best)
}

proptest! {
    #[test]
    fn the_order_of_nodes_does_not_change_the_best(
        shapes in prop::collection::vec(any::<Shape>(), 1..NODES_MAX),
        seed in any::<prop::sample::Index>(),
        affinity in any::<u8>(),
    ) {
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        let first = decide(&shapes, &order, affinity);
        order.rotate_left(seed.index(shapes.len()));
        order.reverse();
        prop_assert_eq!(decide(&shapes, &order, affinity), first);
    }
}

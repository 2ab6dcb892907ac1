//! What is known of pods that are gone is forgotten, and no change rebuilds the index that does not concern it.

use serde_json::{Value, json};

use super::world::plain_pod;
use super::*;

fn engine(nodes_len: usize) -> Engine {
    let mut engine = Engine::new(vec![Profile::default().with_percentage(100)], 7);
    for index in 0..nodes_len {
        let images = json!([{"names": [format!("image:{}", index % 4)], "sizeBytes": 600_000_000}]);
        let node = json!({"metadata": {"name": format!("n{index}"), "labels": {"rack": format!("r{index}")}},
            "status": {"images": images, "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"}}});
        let node = serde_json::from_value(node).unwrap();
        engine.set_node(Node::parse(&node).unwrap());
    }
    engine
}

fn pod(name: &str, image: &str, spec: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "namespace": "d", "labels": {"app": name}}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": image}]);
    Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()
}

/// Places a pod on one of the best nodes.
fn place(engine: &mut Engine, pod: Pod) -> Arc<str> {
    let expected = engine.explain("default-scheduler", &pod).unwrap();
    let Decision::Placed { node } = engine.place("default-scheduler", pod, None) else {
        panic!("not placed");
    };
    assert!(
        expected.best().contains(&&*node),
        "{node} of {:?}",
        expected.best()
    );
    node
}

#[test]
fn an_image_that_is_new_rebuilds_no_index() {
    let mut engine = engine(20);
    place(&mut engine, pod("first", "image:0", &json!({})));
    let revision = engine.index.kinds_revision;
    for index in 1..30 {
        let pod = pod(&format!("p{index}"), &format!("image:{index}"), &json!({}));
        let node = place(&mut engine, pod);
        let number: usize = node[1..].parse().unwrap();
        assert!(index > 3 || number % 4 == index, "{node} for image {index}");
    }
    assert_eq!(engine.index.kinds_revision, revision);
}

#[test]
fn rules_and_images_of_pods_that_are_gone_are_forgotten() {
    let mut engine = engine(20);
    for index in 0..600 {
        let name = format!("p{index}");
        let anti = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}});
        let anti = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}});
        let pod = pod(&name, &format!("image:{index}"), &anti);
        let key = pod.key().clone();
        place(&mut engine, pod);
        if index >= 10 {
            engine.remove_pod(&key);
        }
        let known = engine.index.counters.known_len();
        assert!(known < 200, "{known} rules");
        let counters = engine.index.counters.len();
        assert!(counters < 200, "{counters} counters");
        assert!(engine.index.kinds.images_len() < 200);
        assert!(engine.classes.len() < 200);
    }
}

#[test]
fn events_are_not_kept_for_a_class_that_does_not_come_again() {
    let mut engine = engine(4);
    let huge = json!({"metadata": {"name": "huge", "namespace": "d"}, "spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "64"}}}]}});
    let huge = Pod::parse(&serde_json::from_value(huge).unwrap()).unwrap();
    let decision = engine.decide("default-scheduler", &huge);
    assert!(
        matches!(decision, Decision::Unschedulable { .. }),
        "{decision:?}"
    );
    for _ in 0..2_000 {
        let pod = plain_pod("p");
        let key = pod.key().clone();
        engine.place("default-scheduler", pod, None);
        engine.remove_pod(&key);
        assert!(engine.ledger.touched_len() < 1_100);
    }
    // It is judged by all nodes again.
    engine.failures = Failures::default();
    let decision = engine.decide("default-scheduler", &huge);
    assert!(
        matches!(decision, Decision::Unschedulable { .. }),
        "{decision:?}"
    );
}

#[test]
fn classes_over_many_kinds_of_nodes_are_bounded_in_memory() {
    let mut engine = engine(64);
    let by_rack = json!({"nodeSelector": {"rack": "r7"}});
    assert_eq!(
        &*place(&mut engine, pod("first", "image:0", &by_rack)),
        "n7"
    );
    for index in 0..100 {
        place(
            &mut engine,
            pod(&format!("p{index}"), "image:0", &json!({})),
        );
        let cells = engine.classes.len() * engine.index.kinds.len();
        assert!(cells <= 1 << 11, "{cells}");
    }
}

#[test]
fn a_budget_or_a_volume_makes_no_class_again() {
    let mut engine = engine(4);
    place(&mut engine, plain_pod("first"));
    let mark = |engine: &mut Engine| {
        for class in engine.classes.values_mut() {
            class.needs_keys = !class.needs_keys;
        }
    };
    mark(&mut engine);
    let marked: Vec<_> = engine.classes.values().map(|one| one.needs_keys).collect();
    let claim = json!({"metadata": {"name": "c", "namespace": "d"}, "spec": {}});
    let claim = serde_json::from_value(claim).unwrap();
    engine.cluster().set_claim(&claim).unwrap();
    let budget = json!({"metadata": {"name": "b", "namespace": "d"}, "spec": {}});
    engine
        .cluster()
        .set_budget(&serde_json::from_value(budget).unwrap());
    place(&mut engine, plain_pod("second"));
    let after: Vec<_> = engine.classes.values().map(|one| one.needs_keys).collect();
    assert_eq!(after, marked);
}

//! A cluster in parts has the decision of the whole: verdicts, scores, best nodes, candidates and message are the same, for
//! any number of parts and any order of nodes.
#![expect(
    clippy::unwrap_used,
    reason = "the objects are written here: a malformed one must fail the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use dormouse_scheduler_decide::{Attempt, ImageCensus, Node, Pod, Profile, Scheduler, Snapshot};
use proptest::prelude::*;
use proptest::sample::Index;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NODES_MAX: usize = 24;
const ZONE: &str = "topology.kubernetes.io/zone";

/// A node by its kind, the kinds of its pods, and the number of its part.
type Shape = (u16, Vec<u16>, usize);

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(index: usize, kind: u16) -> Node {
    let name = format!("n{index}");
    let mut labels = json!({"kubernetes.io/hostname": name, "disk": format!("d{}", kind % 2)});
    if !kind.is_multiple_of(5) {
        labels[ZONE] = format!("z{}", kind % 5).into();
    }
    let taint = match kind % 7 {
        0 => json!([{"key": "a", "effect": "PreferNoSchedule"}]),
        1 => json!([{"key": "b", "effect": "NoSchedule"}]),
        _ => json!([]),
    };
    let images = match kind % 3 {
        0 => json!([]),
        1 => json!([{"names": ["i:1"], "sizeBytes": 800_000_000}]),
        _ => {
            json!([{"names": ["i:1"], "sizeBytes": 800_000_000}, {"names": ["i:2"], "sizeBytes": 80_000_000}])
        }
    };
    let allocatable = json!({"cpu": (kind % 4 + 1).to_string(), "memory": "8Gi", "pods": "4"});
    Node::parse(&parsed(
        json!({"metadata": {"name": name, "labels": labels},
        "spec": {"taints": taint}, "status": {"allocatable": allocatable, "images": images}}),
    ))
    .unwrap()
}

fn affinity(kind: u16) -> Value {
    let topology = if kind.is_multiple_of(2) { ZONE } else { "disk" };
    let app = format!("a{}", kind % 3);
    let term = json!({"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]});
    match kind % 11 {
        0 => json!({"podAntiAffinity": required}),
        1 => json!({"podAffinity": required}),
        2 => json!({"podAntiAffinity": preferred}),
        3 => json!({"podAffinity": preferred}),
        4 => {
            let disk =
                json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["d1"]}]});
            let preferred = json!([{"weight": 3, "preference": disk}]);
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
        }
        _ => json!({}),
    }
}

fn pod(name: &str, on: &str, kind: u16) -> Pod {
    let app = format!("a{}", kind % 3);
    let selector = json!({"matchLabels": {"app": app}});
    let spread = |action| json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": action, "labelSelector": selector}]);
    let spread = match kind % 6 {
        0 => spread("DoNotSchedule"),
        1 => spread("ScheduleAnyway"),
        _ => json!([]),
    };
    let ports = match kind % 13 {
        0 => json!([{"containerPort": 80, "hostPort": 80}]),
        _ => json!([]),
    };
    let requests = json!({"requests": {"cpu": format!("{}m", kind % 8 * 250)}});
    let container = json!({"name": "c", "image": format!("i:{}", kind % 2 + 1), "ports": ports, "resources": requests});
    let nominated = if on.is_empty() && kind.is_multiple_of(17) {
        "n0"
    } else {
        ""
    };
    let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"nodeName": on, "priority": kind % 4, "affinity": affinity(kind / 4), "containers": [container],
            "topologySpreadConstraints": spread}, "status": {"nominatedNodeName": nominated}});
    Pod::parse(&parsed(pod)).unwrap()
}

/// What all parts have.
fn common() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = json!({"name": "one", "namespace": "default"});
    snapshot.set_service(&parsed(
        json!({"metadata": meta, "spec": {"selector": {"app": "a2"}}}),
    ));
    snapshot.set_budget(&parsed(json!({"metadata": meta,
        "spec": {"selector": {"matchLabels": {"app": "a1"}}}, "status": {"disruptionsAllowed": 1, "currentHealthy": 0,
            "desiredHealthy": 0, "expectedPods": 0}})));
    snapshot
}

/// The cluster in so many parts, with its nodes in an order.
fn parts(shapes: &[Shape], order: &[usize], len: usize) -> Vec<Snapshot> {
    let mut parts = vec![common(); len];
    let mut images = ImageCensus::default();
    for &index in order {
        let (kind, pods, part) = &shapes[index];
        let node = node(index, *kind);
        images.set_node(None, &node);
        let part = &mut parts[part % len];
        part.set_node(node);
        for (nth, kind) in pods.iter().enumerate() {
            part.set_pod(pod(&format!("p{index}-{nth}"), &format!("n{index}"), *kind));
        }
    }
    let images = images.changes();
    for part in &mut parts {
        for (name, image) in &images {
            part.set_cluster_image(name, *image);
        }
        part.refresh();
    }
    parts
}

fn text(value: &impl Debug) -> String {
    format!("{value:?}")
}

/// What does not depend on the order of nodes.
fn found(attempt: &Attempt) -> BTreeMap<&'static str, String> {
    let by_node = |values: &[i64]| {
        text(
            &attempt
                .feasible
                .iter()
                .zip(values)
                .collect::<BTreeMap<_, _>>(),
        )
    };
    let scores = attempt.scores.as_ref();
    let plugins = scores.map(|scores| {
        let all = scores.plugins.iter();
        all.map(|one| (one.plugin, by_node(&one.raw), by_node(&one.weighted)))
            .collect::<Vec<_>>()
    });
    let preemption = attempt.preemption.as_ref().map(|found| {
        let candidates = found.candidates.iter();
        let candidates: BTreeMap<_, _> = candidates.map(|one| (&one.node, one)).collect();
        let rest = (&found.ineligible, &found.message, &found.error);
        text(&(candidates, &found.rejected, found.best(), rest))
    });
    BTreeMap::from([
        ("outcome", text(&attempt.outcome)),
        ("nomination", text(&attempt.nomination)),
        ("rejected", text(&attempt.rejected)),
        (
            "feasible",
            text(&attempt.feasible.iter().collect::<BTreeSet<_>>()),
        ),
        (
            "best",
            text(&attempt.best().into_iter().collect::<BTreeSet<_>>()),
        ),
        ("nominated", text(&attempt.is_nominated_only)),
        ("plugins", text(&attempt.unschedulable_plugins)),
        ("scores", text(&plugins)),
        ("totals", text(&scores.map(|scores| by_node(&scores.total)))),
        ("preemption", text(&preemption)),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_number_of_parts_has_the_decision_of_the_whole(
        shapes in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u16>(), 0..4), any::<usize>()), 1..NODES_MAX),
        kinds in prop::collection::vec(any::<u16>(), 1..6),
        seed in any::<Index>(),
    ) {
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        let whole = parts(&shapes, &order, 1);
        order.rotate_left(seed.index(shapes.len()));
        order.reverse();
        let split = [1, 2, 8].map(|len| parts(&shapes, &order, len));
        let mut scheduler = Scheduler::new(Profile::default());
        for kind in kinds {
            let pod = pod("new", "", kind);
            let wanted = scheduler.attempt(&whole[0], &pod);
            for parts in &split {
                let ours = scheduler.attempt_over(parts, &pod);
                prop_assert_eq!(found(&ours), found(&wanted), "{} parts, pod of kind {}", parts.len(), kind);
            }
        }
    }
}

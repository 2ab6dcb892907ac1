//! Filters and score of the nodes.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

fn node(cpu_milli: i64, memory: i64, pods: i64) -> NodeInfo {
    NodeInfo {
        allocatable: Resource { cpu_milli, memory },
        pods,
        ready: true,
        ..NodeInfo::default()
    }
}

fn request(cpu_milli: i64, memory: i64) -> Request {
    let amount = Resource { cpu_milli, memory };
    Request {
        requested: amount,
        non_zero_requested: amount,
        ..Request::default()
    }
}

fn nodes(capacities: Vec<NodeInfo>) -> Nodes {
    let mut nodes = Nodes::default();
    for (number, capacity) in capacities.into_iter().enumerate() {
        let index = nodes.index(&format!("n{number}"));
        nodes.update(index, Some(capacity));
    }
    nodes
}

#[test]
fn the_least_allocated_node_is_selected() {
    let mut nodes = nodes(vec![node(4_000, 8_000, 10), node(4_000, 8_000, 10)]);
    let first = nodes.index("n0");
    nodes.add_pod(first, &request(1_000, 1_000));
    let chosen = nodes
        .place(&request(100, 100), &mut Rng::with_seed(1))
        .unwrap();
    assert_eq!(nodes.name(chosen), "n1");
}

#[test]
fn the_score_is_that_of_kube_scheduler() {
    // From kube-scheduler's tests: 4000 and 10000 allocatable, 3000 and 5000 requested: (25 + 50) / 2 = 37.
    let nodes = nodes(vec![node(4_000, 10_000, 10)]);
    let capacity = nodes.info[0].clone().unwrap();
    assert_eq!(nodes.score(0, &capacity, &request(3_000, 5_000)), 37);
    assert_eq!(nodes.score(0, &capacity, &request(5_000, 5_000)), 25);
}

#[test]
fn ties_are_broken_at_random_and_repeatable_by_the_seed() {
    let nodes = nodes(vec![node(4_000, 8_000, 10); 4]);
    let draw = |seed| {
        let mut random = Rng::with_seed(seed);
        let place = || nodes.place(&request(1, 1), &mut random).unwrap().0;
        std::iter::repeat_with(place)
            .take(4_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    for index in 0..4 {
        let count = draw(7).iter().filter(|chosen| **chosen == index).count();
        assert!(
            (800..1_200).contains(&count),
            "node {index} selected {count} times of 4,000"
        );
    }
}

#[test]
fn the_fit_error_counts_the_nodes_that_each_filter_rejected() {
    let not_ready = NodeInfo {
        ready: false,
        ..node(9_000, 9_000, 9)
    };
    let unschedulable = NodeInfo {
        unschedulable: true,
        ..node(9_000, 9_000, 9)
    };
    let labelled = NodeInfo {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..node(10, 10, 0)
    };
    let nodes = nodes(vec![
        not_ready,
        unschedulable,
        node(9_000, 9_000, 9),
        labelled,
    ]);
    let request = Request {
        selector: [("zone".to_owned(), "a".to_owned())].into(),
        ..request(100, 5)
    };
    let error = nodes.place(&request, &mut Rng::with_seed(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0/4 nodes are available: 1 node(s) were not ready, 1 node(s) were unschedulable, \
         1 node(s) didn't match Pod's node affinity/selector, 1 Too many pods, 1 Insufficient cpu."
    );
    assert_eq!(
        Nodes::default()
            .place(&request, &mut Rng::with_seed(1))
            .unwrap_err()
            .to_string(),
        "0/0 nodes are available."
    );
}

#[test]
fn a_node_without_a_node_object_takes_no_pods() {
    let mut nodes = Nodes::default();
    let index = nodes.index("late");
    nodes.add_pod(index, &request(600, 0));
    assert!(nodes.place(&request(1, 1), &mut Rng::with_seed(1)).is_err());
    nodes.update(index, Some(node(1_000, 1_000, 10)));
    assert!(
        nodes
            .place(&request(500, 1), &mut Rng::with_seed(1))
            .is_err()
    );
    assert!(
        nodes
            .place(&request(400, 1), &mut Rng::with_seed(1))
            .is_ok()
    );
}

proptest! {
    #[test]
    fn the_requests_on_a_node_never_exceed_its_allocatable_resources(
        capacities in prop::collection::vec((0i64..4_000, 0i64..4_000, 0i64..8), 1..6),
        requests in prop::collection::vec((0i64..1_500, 0i64..1_500), 1..60),
        seed: u64,
    ) {
        let mut random = Rng::with_seed(seed);
        let mut nodes = nodes(capacities.iter().map(|(cpu, memory, pods)| node(*cpu, *memory, *pods)).collect());
        for (cpu, memory) in requests {
            let request = request(cpu, memory);
            let Ok(index) = nodes.place(&request, &mut random) else { continue };
            nodes.add_pod(index, &request);
            let (cpu_max, memory_max, pods_max) = capacities[index.0];
            prop_assert!(nodes.requested[index.0].cpu_milli <= cpu_max);
            prop_assert!(nodes.requested[index.0].memory <= memory_max);
            prop_assert!(nodes.pods[index.0] <= pods_max);
        }
    }
}

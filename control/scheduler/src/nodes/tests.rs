//! What the choice of a node promises.

use proptest::prelude::*;

use super::*;

fn capacity(cpu_milli: i64, memory: i64, pods: i64) -> Capacity {
    Capacity {
        amount: Amount { cpu_milli, memory },
        pods,
        ready: true,
        ..Capacity::default()
    }
}

fn request(cpu_milli: i64, memory: i64) -> Request {
    let amount = Amount { cpu_milli, memory };
    Request {
        asked: amount,
        scored: amount,
        ..Request::default()
    }
}

fn nodes(capacities: Vec<Capacity>) -> Nodes {
    let mut nodes = Nodes::default();
    for (number, capacity) in capacities.into_iter().enumerate() {
        let slot = nodes.slot(&format!("n{number}"));
        nodes.set(slot, Some(capacity));
    }
    nodes
}

#[test]
fn the_node_with_most_left_is_chosen() {
    let mut nodes = nodes(vec![capacity(4_000, 8_000, 10), capacity(4_000, 8_000, 10)]);
    let first = nodes.slot("n0");
    nodes.add(first, &request(1_000, 1_000));
    let chosen = nodes
        .place(&request(100, 100), &mut Random::new(1))
        .unwrap();
    assert_eq!(nodes.name(chosen), "n1");
}

#[test]
fn the_score_is_kube_schedulers() {
    // kube-scheduler's own table: 4000 and 10000 allocatable, 3000 and 5000 asked: (25 + 50) / 2 = 37.
    let nodes = nodes(vec![capacity(4_000, 10_000, 10)]);
    let capacity = nodes.capacity[0].clone().unwrap();
    assert_eq!(nodes.score(0, &capacity, &request(3_000, 5_000)), 37);
    assert_eq!(nodes.score(0, &capacity, &request(5_000, 5_000)), 25);
}

#[test]
fn equals_draw_lots_and_the_seed_repeats_them() {
    let nodes = nodes(vec![capacity(4_000, 8_000, 10); 4]);
    let draw = |seed| {
        let mut random = Random::new(seed);
        let place = || nodes.place(&request(1, 1), &mut random).unwrap().0;
        std::iter::repeat_with(place)
            .take(4_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    for slot in 0..4 {
        let count = draw(7).iter().filter(|chosen| **chosen == slot).count();
        assert!(
            (800..1_200).contains(&count),
            "node {slot} drawn {count} times of 4,000"
        );
    }
}

#[test]
fn a_pod_that_fits_nowhere_is_told_what_each_filter_refused() {
    let not_ready = Capacity {
        ready: false,
        ..capacity(9_000, 9_000, 9)
    };
    let cordoned = Capacity {
        cordoned: true,
        ..capacity(9_000, 9_000, 9)
    };
    let labelled = Capacity {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..capacity(10, 10, 0)
    };
    let nodes = nodes(vec![
        not_ready,
        cordoned,
        capacity(9_000, 9_000, 9),
        labelled,
    ]);
    let request = Request {
        selector: [("zone".to_owned(), "a".to_owned())].into(),
        ..request(100, 5)
    };
    let unfit = nodes.place(&request, &mut Random::new(1)).unwrap_err();
    assert_eq!(
        unfit.to_string(),
        "0/4 nodes are available: 1 node(s) were not ready, 1 node(s) were unschedulable, \
         1 node(s) didn't match Pod's node affinity/selector, 1 Too many pods, 1 Insufficient cpu."
    );
    assert_eq!(
        Nodes::default()
            .place(&request, &mut Random::new(1))
            .unwrap_err()
            .to_string(),
        "0/0 nodes are available."
    );
}

#[test]
fn a_node_known_by_its_pods_only_takes_no_more() {
    let mut nodes = Nodes::default();
    let slot = nodes.slot("late");
    nodes.add(slot, &request(600, 0));
    assert!(nodes.place(&request(1, 1), &mut Random::new(1)).is_err());
    nodes.set(slot, Some(capacity(1_000, 1_000, 10)));
    assert!(nodes.place(&request(500, 1), &mut Random::new(1)).is_err());
    assert!(nodes.place(&request(400, 1), &mut Random::new(1)).is_ok());
}

proptest! {
    #[test]
    fn no_node_is_ever_given_more_than_it_has(
        capacities in prop::collection::vec((0i64..4_000, 0i64..4_000, 0i64..8), 1..6),
        requests in prop::collection::vec((0i64..1_500, 0i64..1_500), 1..60),
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let mut nodes = nodes(capacities.iter().map(|(cpu, memory, pods)| capacity(*cpu, *memory, *pods)).collect());
        for (cpu, memory) in requests {
            let request = request(cpu, memory);
            let Ok(slot) = nodes.place(&request, &mut random) else { continue };
            nodes.add(slot, &request);
            let (cpu_max, memory_max, pods_max) = capacities[slot.0];
            prop_assert!(nodes.asked[slot.0].cpu_milli <= cpu_max);
            prop_assert!(nodes.asked[slot.0].memory <= memory_max);
            prop_assert!(nodes.pods[slot.0] <= pods_max);
        }
    }
}

//! The engine beside the slow reference, over random events; its index beside a fresh scan; and how ties are drawn.

mod memory;
mod preemption;
mod scan;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{Outcome, Profile};

use super::*;
use world::World;

/// Decides for many pods of a random world, and compares each decision with the reference.
fn replay(seed: u64, percentage: i32, nodes_len: usize, features: &[world::Feature]) {
    let profile = Profile::default().with_percentage(percentage);
    let mut world = World::new(seed, nodes_len, features);
    let mut engine = Engine::new(vec![profile], seed);
    world.begin(&mut engine);
    for step in 0..150 {
        for _ in 0..world.events_len() {
            world.change(&mut engine);
        }
        let pod = world.pod();
        let context = format!("seed {seed}, step {step}, pod {pod:?}");
        compare(&mut engine, &mut world, pod, step % 4 == 0, &context);
        if step % 10 == 0 {
            engine.follow();
            scan::check(&engine);
        }
    }
}

/// Decides for a pod, compares the decision with the reference, and binds the pod.
fn compare(engine: &mut Engine, world: &mut World, pod: Pod, draws_all: bool, context: &str) {
    let expected = engine.explain("default-scheduler", &pod).unwrap();
    let start = engine.profiles[0].0.start();
    let decision = engine.decide("default-scheduler", &pod);
    match &decision {
        Decision::Placed { node } => {
            let best = expected.best();
            assert!(best.contains(&&**node), "{node} of {best:?}: {context}");
            if draws_all {
                draw_all(engine, &pod, start, &best);
            }
            world.bind(engine, pod, node);
        }
        Decision::Unschedulable { .. } => {
            let is_same = matches!(expected.outcome, Outcome::Unschedulable(_));
            assert!(is_same, "{:?}: {context}", expected.outcome);
        }
        other => panic!("{other:?}: {context}"),
    }
    let start = engine.profiles[0].0.start();
    assert_eq!(start, expected.window.next, "start: {context}");
}

/// Draws until each of a few best nodes was drawn, and nothing else.
fn draw_all(engine: &mut Engine, pod: &Pod, start: usize, best: &[&str]) {
    let next = engine.profiles[0].0.start();
    let mut drawn = BTreeSet::new();
    // One of four is missing after that once in a million.
    for _ in 0..if best.len() > 4 { 0 } else { 54 } {
        engine.profiles[0].0.set_start(start);
        let decision = engine.decide("default-scheduler", pod);
        let Decision::Placed { node } = decision else {
            panic!("{decision:?}");
        };
        drawn.insert(node);
    }
    let drawn: BTreeSet<&str> = drawn.iter().map(|node| &**node).collect();
    let all = best.iter().copied().filter(|_| best.len() <= 4);
    assert_eq!(drawn, all.collect(), "start {start}, pod {pod:?}");
    engine.profiles[0].0.set_start(next);
}

#[test]
fn decisions_over_all_nodes_are_those_of_the_reference() {
    for seed in 0..40 {
        replay(seed, 100, 40, &[]);
    }
}

#[test]
fn decisions_over_a_share_of_the_nodes_are_those_of_the_reference() {
    for seed in 0..8 {
        replay(seed, 5, 260, &[]);
    }
}

#[test]
fn decisions_in_windows_of_whole_segments_are_those_of_the_reference() {
    for seed in 0..2 {
        replay(seed, 40, 3_000, &[]);
    }
}

#[test]
fn decisions_in_windows_of_which_pods_keep_away_are_those_of_the_reference() {
    use world::Feature::{AntiAffinity, Roomy};
    for seed in 0..8 {
        replay(seed, 5, 260, &[AntiAffinity]);
        replay(seed, 5, 260, &[AntiAffinity, Roomy]);
        replay(seed, 5, 260, &[Roomy]);
    }
    replay(8, 40, 800, &[AntiAffinity, Roomy]);
}

#[test]
fn decisions_with_spread_and_anti_affinity_are_those_of_the_reference() {
    use world::Feature::{AntiAffinity, Services};
    for seed in 0..12 {
        replay(seed, 100, 40, &[Services]);
        replay(seed, 100, 40, &[AntiAffinity]);
        replay(seed, 100, 40, &[Services, AntiAffinity]);
        replay(seed, 5, 150, &[Services, AntiAffinity]);
    }
}

#[test]
fn decisions_for_runs_of_equal_pods_are_those_of_the_reference() {
    let mut in_runs = 0;
    for seed in 0..60 {
        let mut engine = Engine::new(vec![Profile::default().with_percentage(100)], seed);
        let mut world = World::new(seed, 0, &[]);
        for index in 0..12 {
            let cpu = ["8", "4"][index % 2];
            world.add_plain_node(&mut engine, &format!("n{index}"), cpu);
        }
        for step in 0..100 {
            if step % 9 == 8 {
                world.change(&mut engine);
            }
            let pod = if step % 15 == 0 {
                world.pod()
            } else {
                world.another_pod()
            };
            let context = format!("seed {seed}, step {step}, pod {pod:?}");
            engine.follow();
            in_runs += usize::from(engine.runs.is_on());
            compare(&mut engine, &mut world, pod, step % 4 == 0, &context);
            engine.follow();
            scan::check(&engine);
        }
    }
    assert!(in_runs > 500, "{in_runs}");
}

#[test]
fn each_of_equally_good_nodes_is_drawn_as_often() {
    let mut engine = Engine::new(vec![Profile::default().with_percentage(100)], 7);
    let mut world = World::new(1, 0, &[]);
    for index in 0..20 {
        let cpu = if index < 16 { "4" } else { "2" };
        world.add_plain_node(&mut engine, &format!("n{index}"), cpu);
    }
    let pod = world::plain_pod("p");
    let mut drawn: BTreeMap<Arc<str>, f64> = BTreeMap::new();
    let all = 16_000.0;
    for _ in 0..16_000 {
        let Decision::Placed { node } = engine.decide("default-scheduler", &pod) else {
            panic!("not placed");
        };
        *drawn.entry(node).or_default() += 1.0;
    }
    assert_eq!(drawn.len(), 16);
    let expected = all / 16.0;
    let square = |count: &f64| (count - expected).powi(2) / expected;
    let chi_square: f64 = drawn.values().map(square).sum();
    // 15 degrees of freedom: exceeded once in a million.
    assert!(chi_square < 55.0, "{chi_square}");
}

#[test]
fn pods_of_a_class_that_failed_cost_no_walk_until_something_helps() {
    let mut engine = Engine::new(vec![Profile::default()], 7);
    let mut world = World::new(1, 0, &[]);
    world.add_plain_node(&mut engine, "small", "1");
    let mut last = None;
    for index in 0..4 {
        let pod = world::plain_pod(&format!("p{index}"));
        last = Some(engine.place("default-scheduler", pod, None));
    }
    let Some(Decision::Unschedulable { message, .. }) = &last else {
        panic!("{last:?}");
    };
    assert!(
        message.starts_with("0/1 nodes are available: 1 Insufficient cpu."),
        "{message}"
    );
    let looked_at = engine.looked_at();
    let pod = world::plain_pod("other");
    let again = engine.decide("default-scheduler", &pod);
    assert!(matches!(again, Decision::Unschedulable { .. }), "{again:?}");
    assert_eq!(engine.looked_at(), looked_at);
    world.add_plain_node(&mut engine, "second", "1");
    let placed = engine.decide("default-scheduler", &pod);
    assert!(
        matches!(&placed, Decision::Placed { node } if &**node == "second"),
        "{placed:?}"
    );
}

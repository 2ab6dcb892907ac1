//! Preemption and nominations, beside the reference.

use dormouse_scheduler_decide::{Nomination, Preemption};
use serde_json::json;

use super::world::{Feature, plain_pod};
use super::*;

/// Pods that are nominated, and come again.
type Waiting = Vec<Pod>;

/// What is compared of two decisions.
fn text(nomination: Nomination, found: Option<&Preemption>) -> String {
    let found = found.map(|found| {
        let of = (&found.ineligible, &found.message, &found.error);
        (&found.candidates, of)
    });
    format!("{nomination:?}: {found:?}")
}

/// Decides, and compares the decision with the reference from the same start on, by the same offset.
fn decide(engine: &mut Engine, pod: &Pod, context: &str) -> Decision {
    let start = engine.profiles[0].0.start();
    let decision = engine.decide("default-scheduler", pod);
    let next = engine.profiles[0].0.start();
    engine.profiles[0].0.set_start(start);
    let expected = engine.explain("default-scheduler", pod).unwrap();
    engine.profiles[0].0.set_start(next);
    match &decision {
        Decision::Placed { node } => {
            let best = expected.best();
            assert!(best.contains(&&**node), "{node} of {best:?}: {context}");
        }
        Decision::Unschedulable {
            message,
            plugins,
            nomination,
            preemption,
        } => {
            let whole = Outcome::Unschedulable(message.clone());
            assert_eq!(whole, expected.outcome, "{context}");
            assert_eq!(*plugins, expected.unschedulable_plugins, "{context}");
            let ours = text(*nomination, preemption.as_ref());
            let wanted = text(expected.nomination, expected.preemption.as_ref());
            assert_eq!(ours, wanted, "{context}");
        }
        other => panic!("{other:?}: {context}"),
    }
    assert_eq!(next, expected.window.next, "{context}");
    decision
}

/// Victims go, most of them at once, and the pod waits for its node.
fn evict(engine: &mut Engine, rng: &mut Rng, pod: Pod, found: &Preemption, waiting: &mut Waiting) {
    let chosen = found.chosen().unwrap();
    for key in Preemption::cleared_nominations(engine.snapshot(), &pod, &chosen.node) {
        engine.remove_nomination(&key);
    }
    for victim in chosen.victims.iter().filter(|_| rng.u8(..5) > 0) {
        engine.remove_pod(victim);
    }
    let pod = pod.nominated(&chosen.node);
    engine.set_pod(pod.clone());
    waiting.push(pod);
}

fn replay(seed: u64, percentage: i32, nodes_len: usize, features: &[Feature]) -> usize {
    let profile = Profile::default().with_percentage(percentage);
    let (mut world, mut rng) = (World::new(seed, nodes_len, features), Rng::with_seed(seed));
    let mut engine = Engine::new(vec![profile], seed);
    world.begin(&mut engine);
    let (mut waiting, mut evictions) = (Waiting::new(), 0);
    for step in 0..nodes_len * 5 {
        for _ in 0..world.events_len() {
            world.change(&mut engine);
        }
        if rng.u8(..20) == 0 {
            let allowed = json!({"disruptionsAllowed": rng.u8(..2), "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
            let budget = json!({"metadata": {"name": "b", "namespace": "d"},
                "spec": {"selector": {"matchLabels": {"app": "a1"}}}, "status": allowed});
            let budget = serde_json::from_value(budget).unwrap();
            engine.cluster().set_budget(&budget);
        }
        let pod = if waiting.is_empty() || rng.u8(..4) > 0 {
            world.pod()
        } else {
            waiting.swap_remove(rng.usize(0..waiting.len()))
        };
        // A failure that is kept has an older message.
        engine.failures = Failures::default();
        let context = format!("seed {seed}, step {step}, pod {pod:?}");
        match decide(&mut engine, &pod, &context) {
            Decision::Placed { node } => world.bind(&mut engine, pod, &node),
            Decision::Unschedulable {
                nomination: Nomination::ToVictims,
                preemption: Some(found),
                ..
            } => {
                evictions += 1;
                evict(&mut engine, &mut rng, pod, &found, &mut waiting);
            }
            _ => engine.remove_nomination(pod.key()),
        }
    }
    evictions
}

#[test]
fn evictions_are_those_of_the_reference() {
    let evictions: usize = (0..24)
        .map(|seed| replay(seed, 100, 30, &[Feature::Crowded]))
        .sum();
    assert!(evictions > 240, "{evictions}");
    for seed in 0..4 {
        replay(seed, 5, 130, &[Feature::Crowded]);
        replay(seed, 100, 30, &[Feature::Crowded, Feature::AntiAffinity]);
        replay(seed, 100, 30, &[Feature::Crowded, Feature::Services]);
    }
    replay(6, 40, 260, &[Feature::Crowded, Feature::Services]);
}

fn with_priority(name: &str, priority: i32) -> Pod {
    let pod = json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}});
    Pod::parse(&serde_json::from_value(pod).unwrap()).unwrap()
}

#[test]
fn preemption_looks_at_nodes_that_changed() {
    let mut engine = Engine::new(vec![Profile::default().with_percentage(100)], 7);
    let mut world = World::new(1, 0, &[]);
    for index in 0..200 {
        world.add_plain_node(&mut engine, &format!("n{index}"), "4");
        let low = with_priority(&format!("low{index}"), 0);
        engine.set_pod(low.bound(format!("n{index}"), None));
    }
    let (mut waiting, mut rng) = (Waiting::new(), Rng::with_seed(7));
    let mut preempt = |engine: &mut Engine, name: &str, priority: i32| {
        let pod = with_priority(name, priority);
        let before = engine.looked_at();
        match decide(engine, &pod, name) {
            Decision::Unschedulable {
                preemption: Some(found),
                ..
            } => evict(engine, &mut rng, pod, &found, &mut waiting),
            other => panic!("{other:?}"),
        }
        engine.looked_at() - before
    };
    preempt(&mut engine, "first", 10);
    for index in 0..20 {
        let looked_at = preempt(&mut engine, &format!("high{index}"), 10);
        assert!(looked_at < 10, "{looked_at} nodes");
    }
    let (before, pod) = (engine.looked_at(), waiting.remove(0));
    let placed = decide(&mut engine, &pod, "nominated");
    let node = pod.nominated_node();
    assert!(matches!(placed, Decision::Placed { node: one } if *one == *node));
    world.add_plain_node(&mut engine, "free", "4");
    let low = plain_pod("small");
    decide(&mut engine, &low, "beside nominations");
    assert!(engine.looked_at() - before < 100);
}

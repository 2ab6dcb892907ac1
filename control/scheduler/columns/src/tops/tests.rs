//! Tops beside exact scores.

use fastrand::Rng;

use super::*;
use crate::demand::Demand;

fn weights(rng: &mut Rng) -> Weights {
    let weight = |rng: &mut Rng| rng.i64(1..4);
    Weights {
        fit: weight(rng),
        fit_cpu: weight(rng),
        fit_memory: weight(rng),
        balanced: weight(rng),
        taints: 0,
        affinity: 0,
        images: 0,
        spread: 0,
    }
}

fn state(rng: &mut Rng) -> State {
    let mut amount = |most: u32| f64::from(rng.u32(0..=most));
    let (cpu, memory) = (amount(2_000) + 4_000.0, amount(500_000) + 1e6);
    let (used_cpu, used_memory) = (amount(4_000), amount(1_000_000));
    State {
        cpu,
        memory,
        used_cpu,
        used_memory,
        scored_cpu: used_cpu + amount(200),
        scored_memory: used_memory + amount(2_000),
        free_storage: 0.0,
        free_pods: 1.0,
    }
}

#[test]
fn no_node_of_a_set_scores_more_than_its_top() {
    let mut rng = Rng::with_seed(3);
    let (mut all, mut loose) = (0, 0);
    for _ in 0..20_000 {
        let (cpu, memory) = (rng.u32(0..2_000), rng.u32(0..500_000));
        let request = Amounts {
            cpu: f64::from(cpu),
            memory: f64::from(memory),
            storage: 0.0,
            scored_cpu: f64::from(cpu.max(100)),
            scored_memory: f64::from(memory.max(200)),
            balanced_cpu: f64::from(cpu),
            balanced_memory: f64::from(memory),
        };
        let demand = Demand::new(request, &weights(&mut rng));
        let states: Vec<State> = (0..3).map(|_| state(&mut rng)).collect();
        let mut spans = Spans::default();
        for (lane, state) in states.iter().enumerate() {
            spans.widen(lane, &Span::of(state, state.evenness()));
        }
        let whole = spans.all();
        spans.set(15, &whole);
        let tops = demand.tops.of_spans(&spans);
        for (state, top) in states.iter().zip(tops) {
            let score = demand.score(state, state.evenness());
            if demand.fits(state) {
                assert!(f64::from(top) >= score, "{top} {score} {state:?}");
                all += 1;
                loose += usize::from(f64::from(top) > score + 0.01);
                assert!(tops[15] >= top);
            }
        }
    }
    assert!(loose * 100 < all, "{loose} of {all}");
}

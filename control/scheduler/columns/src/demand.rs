//! What a pod demands of a node's amounts: whether it fits, its score, and bounds of both over many nodes.

use dormouse_scheduler_decide::facts::Weights;

use crate::state::{Amounts, State, even, share, whole};
use crate::tops::Tops;

/// A pod's demand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    request: Amounts,
    fit: f64,
    fit_cpu: f64,
    fit_memory: f64,
    /// 0 for a pod that requests nothing.
    balanced: f64,
    pub(crate) tops: Tops,
}

/// The least and the largest of each amount of some nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    least: State,
    most: State,
    least_free_cpu: f64,
    most_free_cpu: f64,
    least_free_memory: f64,
    most_free_memory: f64,
    least_even: f64,
    most_even: f64,
}

/// What is known of the nodes within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) fits_all: bool,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Range {
    /// That of no node.
    pub(crate) const fn nothing() -> Self {
        Self {
            fits_all: true,
            least: 0.0,
            most: 0.0,
        }
    }
}

impl Bounds {
    pub(crate) fn of(state: &State, evenness: f64) -> Self {
        Self {
            least: *state,
            most: *state,
            least_free_cpu: state.cpu - state.used_cpu,
            most_free_cpu: state.cpu - state.used_cpu,
            least_free_memory: state.memory - state.used_memory,
            most_free_memory: state.memory - state.used_memory,
            least_even: evenness,
            most_even: evenness,
        }
    }

    /// Widens the bounds to those of more nodes.
    pub(crate) fn widen(&mut self, other: &Self) {
        widen(&mut self.least, &other.least, f64::min);
        widen(&mut self.most, &other.most, f64::max);
        self.least_free_cpu = self.least_free_cpu.min(other.least_free_cpu);
        self.most_free_cpu = self.most_free_cpu.max(other.most_free_cpu);
        self.least_free_memory = self.least_free_memory.min(other.least_free_memory);
        self.most_free_memory = self.most_free_memory.max(other.most_free_memory);
        self.least_even = self.least_even.min(other.least_even);
        self.most_even = self.most_even.max(other.most_even);
    }
}

fn widen(mine: &mut State, other: &State, choose: fn(f64, f64) -> f64) {
    mine.cpu = choose(mine.cpu, other.cpu);
    mine.memory = choose(mine.memory, other.memory);
    mine.used_cpu = choose(mine.used_cpu, other.used_cpu);
    mine.used_memory = choose(mine.used_memory, other.used_memory);
    mine.scored_cpu = choose(mine.scored_cpu, other.scored_cpu);
    mine.scored_memory = choose(mine.scored_memory, other.scored_memory);
    mine.free_storage = choose(mine.free_storage, other.free_storage);
    mine.free_pods = choose(mine.free_pods, other.free_pods);
}

/// The score of what is left of a resource.
fn left(capacity: f64, requested: f64) -> f64 {
    let free = (capacity - requested).max(0.0);
    whole(free * 100.0 / capacity)
}

impl Demand {
    pub(crate) fn new(request: Amounts, weights: &Weights) -> Self {
        let is_best_effort = request.balanced_cpu == 0.0 && request.balanced_memory == 0.0;
        let balanced = if is_best_effort {
            0.0
        } else {
            weights.balanced as f64
        };
        Self {
            request,
            tops: Tops::new(&request, weights, balanced),
            fit: weights.fit as f64,
            fit_cpu: weights.fit_cpu as f64,
            fit_memory: weights.fit_memory as f64,
            balanced,
        }
    }

    /// Whether the pod fits; what is not requested is never short.
    #[inline]
    pub(crate) fn fits(&self, state: &State) -> bool {
        let is_enough = |request: f64, free: f64| request <= free || request == 0.0;
        state.free_pods >= 1.0
            && is_enough(self.request.cpu, state.cpu - state.used_cpu)
            && is_enough(self.request.memory, state.memory - state.used_memory)
            && is_enough(self.request.storage, state.free_storage)
    }

    fn of_fit(&self, cpu: f64, memory: f64) -> f64 {
        let sum = cpu * self.fit_cpu + memory * self.fit_memory;
        self.fit * whole(sum / (self.fit_cpu + self.fit_memory))
    }

    /// The score of balance, from the evenness with the pod and without it.
    fn of_balance(&self, with: f64, without: f64) -> f64 {
        self.balanced * (50.0 + whole((50.0 + with - without) / 2.0))
    }

    /// The weighted sum of the scores of NodeResourcesFit and NodeResourcesBalancedAllocation.
    #[inline]
    pub(crate) fn score(&self, state: &State, evenness: f64) -> f64 {
        let request = &self.request;
        let cpu = left(state.cpu, state.scored_cpu + request.scored_cpu);
        let memory = left(state.memory, state.scored_memory + request.scored_memory);
        let cpu_share = share(state.used_cpu + request.balanced_cpu, state.cpu);
        let memory_share = share(state.used_memory + request.balanced_memory, state.memory);
        self.of_fit(cpu, memory) + self.of_balance(even(cpu_share - memory_share), evenness)
    }

    /// The same sum from the scores of both.
    pub(crate) fn weigh(&self, fit: i64, balanced: i64) -> f64 {
        self.fit * fit as f64 + self.balanced * balanced as f64
    }

    /// Whether some of the nodes fit, by their bounds, and what all of their scores are between.
    pub(crate) fn range(&self, bounds: &Bounds) -> Option<Range> {
        let (request, least, most) = (&self.request, &bounds.least, &bounds.most);
        let checks = [
            (request.cpu, bounds.least_free_cpu, bounds.most_free_cpu),
            (
                request.memory,
                bounds.least_free_memory,
                bounds.most_free_memory,
            ),
            (request.storage, least.free_storage, most.free_storage),
        ];
        let is_short = |(request, _, most): &(f64, f64, f64)| *request > 0.0 && request > most;
        if most.free_pods < 1.0 || checks.iter().any(is_short) {
            return None;
        }
        let is_enough = |(request, least, _): &(f64, f64, f64)| request <= least || *request == 0.0;
        let (even_least, even_most) = self.evenness(bounds);
        Some(Range {
            fits_all: least.free_pods >= 1.0 && checks.iter().all(is_enough),
            least: self.of_fit(
                left(least.cpu, most.scored_cpu + request.scored_cpu),
                left(least.memory, most.scored_memory + request.scored_memory),
            ) + self.of_balance(even_least, bounds.most_even),
            most: self.of_fit(
                left(most.cpu, least.scored_cpu + request.scored_cpu),
                left(most.memory, least.scored_memory + request.scored_memory),
            ) + self.of_balance(even_most, bounds.least_even),
        })
    }

    /// The least and the largest evenness with the pod.
    fn evenness(&self, bounds: &Bounds) -> (f64, f64) {
        let (request, least, most) = (&self.request, &bounds.least, &bounds.most);
        let cpu = (
            share(least.used_cpu + request.balanced_cpu, most.cpu),
            share(most.used_cpu + request.balanced_cpu, least.cpu),
        );
        let memory = (
            share(least.used_memory + request.balanced_memory, most.memory),
            share(most.used_memory + request.balanced_memory, least.memory),
        );
        let nearest = (cpu.0 - memory.1).max(memory.0 - cpu.1).max(0.0);
        let farthest = (cpu.1 - memory.0).max(memory.1 - cpu.0);
        (even(farthest), even(nearest))
    }
}

//! Upper bounds of the scores of several sets of nodes at once, in single precision: a set that cannot be as good as the best
//! node so far is left out without a look at it.

use dormouse_scheduler_decide::facts::Weights;

use crate::state::{Amounts, State};

/// Sets that are compared at once: the parts of a cell.
const LANES: usize = 16;
/// More than the error of a score in single precision.
const SCORE_ERROR: f32 = 1e-4;
/// More than the error of a share.
const SHARE_ERROR: f32 = 1e-6;

/// A value of each set.
type Lanes = [f32; LANES];
/// A value of CPU, and one of memory.
type Both = [f32; 2];

/// What bounds the scores of a set of nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// The largest share that is free by the amounts that are scored.
    free: Both,
    /// The least and the largest share of one unit: the reciprocal of what is allocatable.
    unit: [Both; 2],
    /// The least and the largest share that is used.
    used: [Both; 2],
    even_least: f32,
}

/// The spans of some sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    free: [Lanes; 2],
    unit: [[Lanes; 2]; 2],
    used: [[Lanes; 2]; 2],
    even_least: Lanes,
}

/// A pod's demand in single precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tops {
    requested: Both,
    scored: Both,
    balanced: Both,
    fit_parts: Both,
    fit: f32,
    balance: f32,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the error of single precision is taken into account where it is used"
)]
fn single(value: f64) -> f32 {
    value as f32
}

fn both(cpu: f64, memory: f64) -> Both {
    [single(cpu), single(memory)]
}

// These compile to one instruction, other than the functions of the standard library, which care for NaN.
#[inline(always)]
fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline(always)]
fn most(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The integer part of a score.
#[inline(always)]
fn whole(value: f32) -> f32 {
    const ONES: f32 = 8_388_608.0;
    let nearest = (value + ONES) - ONES;
    nearest - if nearest > value { 1.0 } else { 0.0 }
}

impl Span {
    /// That of no node.
    pub(crate) const EMPTY: Self = Self {
        free: [f32::NEG_INFINITY; 2],
        unit: [[f32::INFINITY; 2], [f32::NEG_INFINITY; 2]],
        used: [[f32::INFINITY; 2], [f32::NEG_INFINITY; 2]],
        even_least: f32::INFINITY,
    };

    /// That of one node.
    pub(crate) fn of(state: &State, evenness: f64) -> Self {
        let used = both(state.used_cpu / state.cpu, state.used_memory / state.memory);
        let unit = both(1.0 / state.cpu, 1.0 / state.memory);
        Self {
            free: both(
                (state.cpu - state.scored_cpu) / state.cpu,
                (state.memory - state.scored_memory) / state.memory,
            ),
            unit: [unit, unit],
            used: [used, used],
            even_least: single(evenness),
        }
    }

    /// Widens the span to that of more nodes.
    pub(crate) fn widen(&mut self, other: &Self) {
        for resource in 0..2 {
            self.free[resource] = most(self.free[resource], other.free[resource]);
            for (mine, other) in [(&mut self.unit, &other.unit), (&mut self.used, &other.used)] {
                mine[0][resource] = least(mine[0][resource], other[0][resource]);
                mine[1][resource] = most(mine[1][resource], other[1][resource]);
            }
        }
        self.even_least = least(self.even_least, other.even_least);
    }
}

impl Spans {
    fn get(&self, lane: usize) -> Span {
        let both = |lanes: &[Lanes; 2]| [lanes[0][lane], lanes[1][lane]];
        Span {
            free: both(&self.free),
            unit: [both(&self.unit[0]), both(&self.unit[1])],
            used: [both(&self.used[0]), both(&self.used[1])],
            even_least: self.even_least[lane],
        }
    }

    /// Widens the span of a set.
    pub(crate) fn widen(&mut self, lane: usize, span: &Span) {
        let mut mine = self.get(lane);
        mine.widen(span);
        self.set(lane, &mine);
    }

    /// That of all sets.
    pub(crate) fn all(&self) -> Span {
        let spans = (0..LANES).map(|lane| self.get(lane));
        spans.fold(Span::EMPTY, |mut all, span| {
            all.widen(&span);
            all
        })
    }

    pub(crate) fn set(&mut self, lane: usize, span: &Span) {
        for resource in 0..2 {
            self.free[resource][lane] = span.free[resource];
            for end in 0..2 {
                self.unit[end][resource][lane] = span.unit[end][resource];
                self.used[end][resource][lane] = span.used[end][resource];
            }
        }
        self.even_least[lane] = span.even_least;
    }
}

impl Default for Spans {
    fn default() -> Self {
        let nothing = [0.0; LANES];
        let mut spans = Self {
            free: [nothing; 2],
            unit: [[nothing; 2]; 2],
            used: [[nothing; 2]; 2],
            even_least: nothing,
        };
        (0..LANES).for_each(|lane| spans.set(lane, &Span::EMPTY));
        spans
    }
}

impl Tops {
    pub(crate) fn new(request: &Amounts, weights: &Weights, balance: f64) -> Self {
        // What is not requested is never short.
        let needed = |amount: f64| {
            if amount == 0.0 {
                f64::NEG_INFINITY
            } else {
                amount
            }
        };
        let (cpu, memory) = (weights.fit_cpu as f64, weights.fit_memory as f64);
        Self {
            requested: both(needed(request.cpu), needed(request.memory)),
            scored: both(request.scored_cpu, request.scored_memory),
            balanced: both(request.balanced_cpu, request.balanced_memory),
            fit_parts: both(cpu / (cpu + memory), memory / (cpu + memory)),
            fit: single(weights.fit as f64),
            balance: single(balance),
        }
    }

    /// No node of each set that can have the pod has a larger sum of the scores of resources.
    pub(crate) fn of_spans(&self, spans: &Spans) -> [f32; LANES] {
        let mut tops = [0.0; LANES];
        for (lane, top) in tops.iter_mut().enumerate() {
            *top = self.of(&spans.get(lane));
        }
        tops
    }

    #[inline(always)]
    fn of(&self, span: &Span) -> f32 {
        let ([unit_least, unit_most], [used_least, used_most]) = (span.unit, span.used);
        let left = |resource: usize| {
            let share = span.free[resource] - self.scored[resource] * unit_least[resource];
            whole(most(share, 0.0) * 100.0 + SCORE_ERROR)
        };
        let fit = left(0) * self.fit_parts[0] + left(1) * self.fit_parts[1];
        let share = |used: Both, unit: Both, resource: usize| {
            least(
                used[resource] + self.balanced[resource] * unit[resource],
                1.0,
            )
        };
        let nearest = most(
            share(used_least, unit_least, 0) - share(used_most, unit_most, 1),
            share(used_least, unit_least, 1) - share(used_most, unit_most, 0),
        );
        let even = whole(100.0 - most(nearest, 0.0) * 50.0 + SCORE_ERROR);
        let balance = 50.0 + whole((50.0 + even - span.even_least) / 2.0);
        let needed = |resource: usize| {
            self.requested[resource] * unit_least[resource] + used_least[resource]
        };
        let total = self.fit * whole(fit + SCORE_ERROR) + self.balance * balance;
        let is_short = most(needed(0), needed(1)) > 1.0 + SHARE_ERROR;
        if is_short {
            f32::NEG_INFINITY
        } else {
            total + total * SHARE_ERROR
        }
    }
}

#[cfg(test)]
mod tests;

//! The amounts of a node as floats: integers that are small enough for exact quotients.

use dormouse_scheduler_decide::facts::{Request, Usage};

/// Amounts up to here, times 100, are exact in a float, and so is the integer part of a quotient of two of them.
const EXACT_MAX: i64 = 1 << 46;

/// The amounts of a node, each of them an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
    pub(crate) used_cpu: f64,
    pub(crate) used_memory: f64,
    pub(crate) scored_cpu: f64,
    pub(crate) scored_memory: f64,
    pub(crate) free_storage: f64,
    pub(crate) free_pods: f64,
}

fn exact(amount: i64) -> Option<f64> {
    (0..=EXACT_MAX).contains(&amount).then_some(amount as f64)
}

/// What is free may be less than nothing; beyond the bound it makes no difference.
fn free(amount: i64) -> f64 {
    amount.clamp(-EXACT_MAX, EXACT_MAX) as f64
}

impl State {
    /// `None` for amounts that are negative, too large, or nothing of what is shared out.
    pub(crate) fn of(usage: &Usage) -> Option<Self> {
        if usage.cpu == 0 || usage.memory == 0 {
            return None;
        }
        Some(Self {
            cpu: exact(usage.cpu)?,
            memory: exact(usage.memory)?,
            used_cpu: exact(usage.used_cpu)?,
            used_memory: exact(usage.used_memory)?,
            scored_cpu: exact(usage.scored_cpu)?,
            scored_memory: exact(usage.scored_memory)?,
            free_storage: free(usage.free_storage),
            free_pods: free(usage.free_pods),
        })
    }

    /// The state of no node.
    pub(crate) const fn nothing() -> Self {
        Self {
            cpu: 1.0,
            memory: 1.0,
            used_cpu: 0.0,
            used_memory: 0.0,
            scored_cpu: 0.0,
            scored_memory: 0.0,
            free_storage: 0.0,
            free_pods: 0.0,
        }
    }

    #[inline]
    pub(crate) fn bits(&self) -> [u64; 8] {
        [
            self.cpu.to_bits(),
            self.memory.to_bits(),
            self.used_cpu.to_bits(),
            self.used_memory.to_bits(),
            self.scored_cpu.to_bits(),
            self.scored_memory.to_bits(),
            self.free_storage.to_bits(),
            self.free_pods.to_bits(),
        ]
    }

    /// Whether all amounts are the same, compared without a branch.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let pairs = self.bits().into_iter().zip(other.bits());
        pairs.fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }

    /// How evenly CPU and memory are used, from 0 to 100.
    pub(crate) fn evenness(&self) -> f64 {
        let cpu = share(self.used_cpu, self.cpu);
        let memory = share(self.used_memory, self.memory);
        even(cpu - memory)
    }
}

/// The share that is used, at most 1.
pub(crate) fn share(used: f64, of: f64) -> f64 {
    (used / of).min(1.0)
}

/// The evenness of two shares with this difference.
pub(crate) fn even(difference: f64) -> f64 {
    whole((1.0 - (difference / 2.0).abs()) * 100.0)
}

/// The integer part of a number that is not negative.
pub(crate) fn whole(value: f64) -> f64 {
    const ONES: f64 = 4_503_599_627_370_496.0;
    let nearest = (value + ONES) - ONES;
    if nearest > value {
        nearest - 1.0
    } else {
        nearest
    }
}

/// The amounts of a request, each of them an integer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
    pub(crate) storage: f64,
    pub(crate) scored_cpu: f64,
    pub(crate) scored_memory: f64,
    pub(crate) balanced_cpu: f64,
    pub(crate) balanced_memory: f64,
}

impl Amounts {
    /// `None` for amounts that are negative or too large.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        Some(Self {
            cpu: exact(request.cpu)?,
            memory: exact(request.memory)?,
            storage: exact(request.storage)?,
            scored_cpu: exact(request.scored_cpu)?,
            scored_memory: exact(request.scored_memory)?,
            balanced_cpu: exact(request.balanced_cpu)?,
            balanced_memory: exact(request.balanced_memory)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integer_part_is_exact_next_to_integers() {
        for value in [0.0, 0.5, 1.0, 1.5, 99.0, 100.0] {
            assert_eq!(whole(value).to_bits(), f64::floor(value).to_bits());
            let below = f64::from_bits(f64::to_bits(value).saturating_sub(1));
            assert_eq!(whole(below).to_bits(), below.floor().to_bits());
        }
    }
}

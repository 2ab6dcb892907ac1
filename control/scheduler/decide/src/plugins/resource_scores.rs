//! Scores of how much of a node's resources is requested: least, most, by a shape, and balanced.

use crate::node_state::NodeState;
use crate::plugins::normalize::{SCORE_MAX, truncated};
use crate::profile::{ShapePoint, Strategy, WeightedResource};
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar};

/// Percent of a resource that is requested, at most.
const UTILIZATION_MAX: i64 = 100;

/// One resource of a node, as a score reads it; all 0 if it does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Requested with the pod.
    pub(crate) with: i64,
    /// Requested without the pod.
    pub(crate) without: i64,
    pub(crate) allocatable: i64,
}

/// The usage of a resource once the pod, which requests `request`, is on the node.
pub(crate) fn usage(node: &NodeState, name: &str, request: i64, non_zero: bool) -> Usage {
    if request == 0 && is_scalar(name) {
        return Usage::default();
    }
    let all = &node.node.allocatable;
    let (allocatable, without) = match (name, non_zero) {
        (CPU, true) => (all.cpu_milli, node.non_zero.cpu_milli),
        (CPU, false) => (all.cpu_milli, node.requested.cpu_milli),
        (MEMORY, true) => (all.memory, node.non_zero.memory),
        (MEMORY, false) => (all.memory, node.requested.memory),
        (EPHEMERAL_STORAGE, _) => (all.ephemeral_storage, node.requested.ephemeral_storage),
        _ => (all.scalar(name), node.requested.scalar(name)),
    };
    if allocatable == 0 {
        return Usage::default();
    }
    Usage {
        with: without.wrapping_add(request),
        without,
        allocatable,
    }
}

/// The score of a strategy over its resources.
pub(crate) fn score(strategy: &Strategy, resources: &[WeightedResource], usages: &[Usage]) -> i64 {
    let counted = resources.iter().zip(usages);
    let counted = counted.filter(|(_, usage)| usage.allocatable != 0);
    let (mut sum, mut weights) = (0_i64, 0_i64);
    for (resource, usage) in counted {
        let score = of_resource(strategy, usage);
        if matches!(strategy, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
            continue;
        }
        sum = sum.wrapping_add(score.wrapping_mul(resource.weight));
        weights = weights.wrapping_add(resource.weight);
    }
    match strategy {
        _ if weights == 0 => 0,
        Strategy::RequestedToCapacityRatio(_) => truncated((sum as f64 / weights as f64).round()),
        _ => sum.wrapping_div(weights),
    }
}

fn of_resource(strategy: &Strategy, usage: &Usage) -> i64 {
    let (requested, capacity) = (usage.with, usage.allocatable);
    match strategy {
        Strategy::LeastAllocated if requested > capacity => 0,
        Strategy::LeastAllocated => {
            let free = capacity.wrapping_sub(requested);
            free.wrapping_mul(SCORE_MAX).wrapping_div(capacity)
        }
        Strategy::MostAllocated => {
            let requested = requested.min(capacity);
            requested.wrapping_mul(SCORE_MAX).wrapping_div(capacity)
        }
        Strategy::RequestedToCapacityRatio(shape) if requested > capacity => {
            on_shape(shape, UTILIZATION_MAX)
        }
        Strategy::RequestedToCapacityRatio(shape) => {
            let percent = requested
                .wrapping_mul(UTILIZATION_MAX)
                .wrapping_div(capacity);
            on_shape(shape, percent)
        }
    }
}

/// The score at a utilization, on straight lines between the points.
fn on_shape(shape: &[ShapePoint], utilization: i64) -> i64 {
    let Some(at) = shape
        .iter()
        .position(|point| utilization <= point.utilization)
    else {
        return shape.last().map_or(0, |last| last.score);
    };
    let to = shape[at];
    let Some(from) = at.checked_sub(1).map(|before| shape[before]) else {
        return to.score;
    };
    let rise = (to.score - from.score).wrapping_mul(utilization.wrapping_sub(from.utilization));
    from.score + rise / (to.utilization - from.utilization)
}

/// How evenly the resources are used, 100 for equal shares; and whether the pod makes that better: above 75 if it does.
pub(crate) fn balance(usages: &[Usage]) -> i64 {
    let with = evenness(usages, |usage| usage.with);
    let without = evenness(usages, |usage| usage.without);
    let half = SCORE_MAX / 2;
    half.wrapping_add(half.wrapping_add(with).wrapping_sub(without) / 2)
}

fn evenness(usages: &[Usage], requested: fn(&Usage) -> i64) -> i64 {
    let counted = usages.iter().filter(|usage| usage.allocatable != 0);
    let share = |usage: &Usage| (requested(usage) as f64 / usage.allocatable as f64).min(1.0);
    let shares: Vec<f64> = counted.map(share).collect();
    let deviation = match shares.as_slice() {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        several => {
            let len = several.len() as f64;
            let mean = several.iter().fold(0.0, |sum, share| sum + share) / len;
            let squares = several.iter().map(|share| (share - mean) * (share - mean));
            (squares.fold(0.0, |sum, square| sum + square) / len).sqrt()
        }
    };
    truncated((1.0 - deviation) * SCORE_MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(with: i64, allocatable: i64) -> Usage {
        Usage {
            with,
            without: 0,
            allocatable,
        }
    }

    fn points(all: &[(i64, i64)]) -> Vec<ShapePoint> {
        let point = |(utilization, score): &(i64, i64)| ShapePoint {
            utilization: *utilization,
            score: *score,
        };
        all.iter().map(point).collect()
    }

    #[test]
    fn strategies_on_one_resource() {
        let least = |with| of_resource(&Strategy::LeastAllocated, &used(with, 8));
        assert_eq!([least(0), least(1), least(8), least(9)], [100, 87, 0, 0]);
        let most = |with| of_resource(&Strategy::MostAllocated, &used(with, 8));
        assert_eq!([most(0), most(1), most(8), most(9)], [0, 12, 100, 100]);
    }

    #[test]
    fn a_shape_is_linear_between_its_points() {
        let shape = points(&[(20, 20), (60, 100), (90, 40)]);
        let at = |utilization| on_shape(&shape, utilization);
        assert_eq!(
            [at(0), at(20), at(21), at(60), at(61)],
            [20, 20, 22, 100, 98]
        );
        assert_eq!([at(90), at(100)], [40, 40]);
    }

    #[test]
    fn a_pod_that_evens_out_shares_scores_more() {
        let both = |first: (i64, i64), second: (i64, i64)| {
            let of = |(with, without)| Usage {
                with,
                without,
                allocatable: 100,
            };
            balance(&[of(first), of(second)])
        };
        assert_eq!(both((50, 50), (50, 0)), 87);
        assert_eq!(both((50, 0), (0, 0)), 62);
        assert_eq!(both((10, 10), (10, 10)), 75);
    }
}

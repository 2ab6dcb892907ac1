//! The importance of pods, and the choice among nodes from which victims could go.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::Candidate;
use crate::pod::Pod;

/// Added to each priority, so that more victims are a larger sum.
const PRIORITY_OFFSET: i64 = 1 << 31;

/// A start that is now if there is none yet: after all others.
fn start(time: Option<Timestamp>) -> (bool, Option<Timestamp>) {
    (time.is_none(), time)
}

/// The order of pods, the most important first: by priority, then by start.
pub(super) fn importance(pod: &Pod) -> impl Ord + use<> {
    (Reverse(pod.priority), start(pod.start_time))
}

/// A candidate by its victims, which are in the order of their importance.
pub(super) fn described(node: &str, victims: &[Arc<Pod>], budget_violations: usize) -> Candidate {
    let highest_priority = victims.iter().map(|pod| pod.priority).max().unwrap_or(0);
    let highest = victims
        .iter()
        .filter(|pod| pod.priority == highest_priority);
    let earliest = highest.map(|pod| start(pod.start_time)).min();
    let sum = victims
        .iter()
        .map(|pod| i64::from(pod.priority) + PRIORITY_OFFSET);
    Candidate {
        node: node.to_owned(),
        victims: victims.iter().map(|pod| pod.key.clone()).collect(),
        budget_violations,
        highest_priority: victims.first().map_or(0, |pod| pod.priority),
        priority_sum: sum.sum(),
        earliest_start: earliest.and_then(|(_, time)| time),
    }
}

/// The candidates that no criterion distinguishes.
pub(super) fn best(candidates: &[Arc<Candidate>]) -> impl Iterator<Item = &Arc<Candidate>> {
    let key = |one: &Arc<Candidate>| {
        (
            one.budget_violations,
            one.highest_priority,
            one.priority_sum,
            one.victims.len(),
            Reverse(start(one.earliest_start)),
        )
    };
    let least = candidates.iter().map(key).min();
    candidates.iter().filter(move |one| Some(key(one)) == least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodKey;
    use crate::preempt::Preemption;

    fn candidate(node: &str, violations: usize, priority: i32, victims: usize) -> Candidate {
        let key = |name: usize| PodKey {
            namespace: "default".to_owned(),
            name: name.to_string(),
        };
        Candidate {
            node: node.to_owned(),
            victims: (0..victims).map(key).collect(),
            budget_violations: violations,
            highest_priority: priority,
            priority_sum: (i64::from(priority) + PRIORITY_OFFSET) * i64::try_from(victims).unwrap(),
            earliest_start: Timestamp::from_second(i64::try_from(victims).unwrap()).ok(),
        }
    }

    #[test]
    fn criteria_in_their_order() {
        let names = |all: &[Candidate]| {
            let candidates = all.iter().cloned().map(Arc::new).collect();
            let preemption = Preemption {
                candidates,
                ..Preemption::default()
            };
            let best = preemption.best().into_iter();
            best.map(|one| one.node.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&[candidate("a", 1, 0, 1), candidate("b", 0, 9, 3)]),
            ["b"]
        );
        assert_eq!(
            names(&[candidate("a", 0, 5, 1), candidate("b", 0, 4, 3)]),
            ["b"]
        );
        assert_eq!(
            names(&[candidate("a", 0, 5, 2), candidate("b", 0, 5, 1)]),
            ["b"]
        );
        assert_eq!(
            names(&[candidate("b", 0, 5, 1), candidate("a", 0, 5, 1)]),
            ["a", "b"]
        );
        let mut late = candidate("c", 0, 5, 1);
        late.earliest_start = None;
        assert_eq!(names(&[candidate("a", 0, 5, 1), late]), ["c"]);
    }
}

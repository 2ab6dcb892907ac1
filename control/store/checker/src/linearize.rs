//! Linearizability: an order of the operations that respects their times and that the model explains.
//!
//! The search takes one operation after the other. An operation can be next if no other operation that is left returned
//! before it was called. Configurations that were visited before are not searched again.

use std::{cmp, collections::HashSet, fmt};

use crate::{
    groups,
    history::{Ending, Nanos, Operation},
    model::State,
};

/// Configurations visited for one group of keys, beyond which the search gives up.
pub const CONFIGURATIONS_MAX: usize = 1 << 20;

/// Why a history is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// There is no order.
    #[error(
        "not linearizable: after {placed} of {operations} operations none of these can be next:{next}"
    )]
    NotLinearizable {
        /// Operations in the longest order found.
        placed: usize,
        /// Operations of the group that were answered.
        operations: usize,
        /// The operations that could have been next.
        next: Candidates,
    },
    /// The search gave up after [`CONFIGURATIONS_MAX`] configurations.
    #[error(
        "undecided after {CONFIGURATIONS_MAX} configurations: use fewer clients or keys for each transaction"
    )]
    Undecided,
}

/// Operations, one in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates(Vec<Operation>);

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|operation| write!(f, "\n  {operation:?}"))
    }
}

/// Checks the operations of all clients.
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    let groups = groups::split(operations);
    groups
        .into_iter()
        .try_for_each(|group| Search::new(group).run())
}

/// A part of an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Configuration {
    /// All answered operations below this index are placed.
    first: usize,
    /// Placed answered operations above it, in order.
    ahead: Vec<usize>,
    /// Lost operations that took effect, in order.
    applied: Vec<usize>,
    /// The latest call of a placed operation.
    latest_call: Nanos,
    state: State,
}

impl Configuration {
    fn placed(&self) -> usize {
        self.first + self.ahead.len()
    }

    fn place_answered(&mut self, index: usize) {
        let at = self.ahead.partition_point(|other| *other < index);
        self.ahead.insert(at, index);
        let whole = self
            .ahead
            .iter()
            .zip(self.first..)
            .take_while(|(a, b)| *a == b);
        let whole = whole.count();
        self.ahead.drain(..whole);
        self.first += whole;
    }

    fn place_lost(&mut self, index: usize) {
        let at = self.applied.partition_point(|other| *other < index);
        self.applied.insert(at, index);
    }
}

/// A configuration whose successors are visited one by one.
struct Frame {
    configuration: Configuration,
    /// Answered operations that can be next.
    answered: Vec<usize>,
    /// The earliest return of the operations that are left.
    earliest_return: Nanos,
    /// The number of candidates that were tried: the answered ones, then the lost ones.
    tried: usize,
}

struct Search<'a> {
    /// Answered operations by the time of their call.
    answered: Vec<&'a Operation>,
    /// Lost operations that write, by the time of their call.
    lost: Vec<&'a Operation>,
    visited: HashSet<Configuration>,
}

impl<'a> Search<'a> {
    fn new(mut group: Vec<&'a Operation>) -> Self {
        group.sort_by_key(|operation| operation.called);
        let (answered, mut lost): (Vec<_>, Vec<_>) = group
            .into_iter()
            .partition(|operation| operation.answer().is_some());
        lost.retain(|operation| !operation.request.is_read_only());
        Self {
            answered,
            lost,
            visited: HashSet::new(),
        }
    }

    fn run(mut self) -> Result<(), Violation> {
        let mut stack = vec![self.frame(Configuration::default())];
        let mut longest = Configuration::default();
        while let Some(frame) = stack.last_mut() {
            if frame.configuration.placed() == self.answered.len() {
                return Ok(());
            }
            if frame.configuration.placed() > longest.placed() {
                longest = frame.configuration.clone();
            }
            let tried = frame.tried;
            frame.tried += 1;
            if tried == frame.answered.len() + self.lost.len() {
                stack.pop();
                continue;
            }
            let successors = self.successors(frame, tried);
            for next in successors {
                if self.visited.insert(next.clone()) {
                    stack.push(self.frame(next));
                }
            }
            if self.visited.len() > CONFIGURATIONS_MAX {
                return Err(Violation::Undecided);
            }
        }
        Err(self.violation(longest))
    }

    /// A configuration with its candidates: by revision, writes before reads, since that is most often their order.
    fn frame(&self, configuration: Configuration) -> Frame {
        let mut answered = Vec::new();
        let mut earliest_return = Nanos::MAX;
        for index in configuration.first..self.answered.len() {
            let operation = self.answered[index];
            if operation.called > earliest_return {
                break;
            }
            if configuration.ahead.binary_search(&index).is_err() {
                let returned = operation.answer().map_or(Nanos::MAX, |(at, _)| at);
                earliest_return = cmp::min(earliest_return, returned);
                answered.push(index);
            }
        }
        answered.sort_by_key(|index| {
            let operation = self.answered[*index];
            let revision = operation.answer().map(|(_, response)| response.revision);
            (revision, operation.effects().is_empty())
        });
        Frame {
            configuration,
            answered,
            earliest_return,
            tried: 0,
        }
    }

    /// The configurations after the candidate with a number.
    fn successors(&self, frame: &Frame, candidate: usize) -> Vec<Configuration> {
        let from = &frame.configuration;
        if let Some(index) = frame.answered.get(candidate) {
            return after(
                from,
                self.lost.len() + index,
                self.answered[*index],
                |next| {
                    next.place_answered(*index);
                },
            );
        }
        let index = candidate - frame.answered.len();
        let operation = self.lost[index];
        let Ending::Lost { until } = operation.ending else {
            return Vec::new();
        };
        let in_time = operation.called <= frame.earliest_return && from.latest_call <= until;
        if !in_time || from.applied.binary_search(&index).is_ok() {
            return Vec::new();
        }
        after(from, index, operation, |next| next.place_lost(index))
    }

    fn violation(&self, longest: Configuration) -> Violation {
        let placed = longest.placed();
        let next = self.frame(longest).answered;
        Violation::NotLinearizable {
            placed,
            operations: self.answered.len(),
            next: Candidates(
                next.iter()
                    .map(|index| self.answered[*index].clone())
                    .collect(),
            ),
        }
    }
}

fn after(
    from: &Configuration,
    number: usize,
    operation: &Operation,
    place: impl Fn(&mut Configuration),
) -> Vec<Configuration> {
    let states = from.state.after(number, operation);
    let configurations = states.into_iter().map(|state| {
        let mut next = Configuration {
            state,
            latest_call: cmp::max(from.latest_call, operation.called),
            ..from.clone()
        };
        place(&mut next);
        next
    });
    configurations.collect()
}
